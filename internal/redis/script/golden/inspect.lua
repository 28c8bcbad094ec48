-- INSPECT() of so many locks as there are KEYS -> {OK, seconds and µs of the clock, then what is
-- stored of each lock: '' | '$ms-left value' | '#field value …', in lines | '?' for what is no lock}
-- Reads only: it tells what was true at this instant. Of several locks it tells of the first ones,
-- of one at least: those behind ENOUGH values are left to the next script, so that this one is
-- short. The client decodes them: here that would take the server four times as long.
local OK, ENOUGH = 1, 1000
-- uses: lib/short
-- The short string of a lock, see doc.go: a free one is 'h2 counter', a held one 'h2 counter margin
-- id count meta'. Scripts read and write it by what is here and no other way, and clients by
-- short.go. (These are no functions: making one costs the server a hundredth of a pair.)
local IS_FREE = '^h2 (%d+)$' -- matches that of a free lock: its counter
local IS_HELD = '^h2 (%d+) (%d+) ([^ ]+) (%d+) (.*)$' -- counter, margin, id, count, meta
local HELD_BY = '^h2 %d+ (%d+) ([^ ]+) ' -- of a held one, margin and id alone, which costs less
local H2 = 'h2 ' -- what it begins with; the counter is next
-- The same for a counter that is near the clock, in millions and the rest. (%d has 32 bits on some
-- servers, and %.0f costs twice as much.) It has 16 digits until the year 2286, and with it the
-- string has BARE bytes: all of that of a free lock.
local RECENT, BARE = 'h2 %d%06d', 19
local time, values = redis.call('TIME'), 0
local reply = {OK, time[1], time[2]}
for n, key in ipairs(KEYS) do
  local stored = ''
  local value = redis.pcall('GET', key)
  if type(value) == 'string' then
    stored = string.find(value, H2, 1, true) == 1 and '$' .. redis.call('PTTL', key) .. ' ' .. value or '?'
  elseif value then
    local version = redis.pcall('HGET', key, 'v') -- what is not ours may have any size
    if type(version) == 'table' and not string.find(version.err, 'WRONGTYPE', 1, true) then return version end
    stored = '?'
    if version == 'h2' then
      local fields = redis.call('HGETALL', key)
      stored = '#' .. table.concat(fields, '\n') -- no value of ours has a line end
      values = values + #fields
    end
  end
  reply[n + 3] = stored
  if values >= ENOUGH then break end
end
return reply
