local function apply(KEYS, ARGV)
return redis.call('SET', KEYS[1], ARGV[1])
end
-- FENCED(token, first, the program's arguments …) -> {OK, reply} | {LOST, token of the mark or 0}
-- apply, before this, is the program's own script as a function. KEYS are the lock, the mark, in
-- the string dialect the side key, and the program's keys, of which first says where they begin.
local token, first_key = tonumber(ARGV[1]), tonumber(ARGV[2])
local OK, LOST = 1, 3
-- uses: lib/short lib/grant
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
-- The grant: which tokens the last hold of a lock has, read from the lock in any of its forms. It
-- is for scripts that only ask whose turn it is. No clock is in it: as long as a lock names a hold,
-- no other was granted since, whether the lease still runs or not.

-- grant returns the first and the last token, or nothing if the last hold was released or
-- forgotten, or is not exclusive. beside is the side key of the string dialect.
local function grant(key, beside)
  local stored = redis.pcall('GET', key)
  if not stored then return end
  if beside then
    local side = redis.pcall('GET', beside)
    side = type(side) == 'string' and side or ''
    local counter, count, owner = string.match(side, '^h2 (%d+) (%d+) ([^ ]*) ')
    if counter and owner == stored then return counter - count + 1, counter + 0 end
    return
  end
  if type(stored) == 'string' then
    local counter, _, _, count = string.match(stored, IS_HELD)
    if counter then return counter - count + 1, counter + 0 end
    return
  end
  local fields = redis.pcall('HMGET', key, 'v', 'o', 'f', 'b', 'g', 'k:1')
  if fields.err or fields[1] ~= 'h2' then return end
  if fields[2] then
    -- A damaged counter is no grant.
    local counter, count = string.match(fields[3] or '', '^%d+$'), string.match(fields[4] or '1', '^%d+$')
    if counter and count then return counter - count + 1, counter + 0 end
    return -- damaged
  end
  -- All holds of a re-entrant owner have one token. Others who hold together are no exclusive hold.
  local token = fields[5] and string.find(fields[5], '^r ') and string.match(fields[6] or '', '^%d+ (%d+) ')
  if token then return token + 0, token + 0 end
end
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
-- The grant: which tokens the last hold of a lock has, read from the lock in any of its forms. It
-- is for scripts that only ask whose turn it is. No clock is in it: as long as a lock names a hold,
-- no other was granted since, whether the lease still runs or not.

-- grant returns the first and the last token, or nothing if the last hold was released or
-- forgotten, or is not exclusive. beside is the side key of the string dialect.
local function grant(key, beside)
  local stored = redis.pcall('GET', key)
  if not stored then return end
  if beside then
    local side = redis.pcall('GET', beside)
    side = type(side) == 'string' and side or ''
    local counter, count, owner = string.match(side, '^h2 (%d+) (%d+) ([^ ]*) ')
    if counter and owner == stored then return counter - count + 1, counter + 0 end
    return
  end
  if type(stored) == 'string' then
    local counter, _, _, count = string.match(stored, IS_HELD)
    if counter then return counter - count + 1, counter + 0 end
    return
  end
  local fields = redis.pcall('HMGET', key, 'v', 'o', 'f', 'b', 'g', 'k:1')
  if fields.err or fields[1] ~= 'h2' then return end
  if fields[2] then
    -- A damaged counter is no grant.
    local counter, count = string.match(fields[3] or '', '^%d+$'), string.match(fields[4] or '1', '^%d+$')
    if counter and count then return counter - count + 1, counter + 0 end
    return -- damaged
  end
  -- All holds of a re-entrant owner have one token. Others who hold together are no exclusive hold.
  local token = fields[5] and string.find(fields[5], '^r ') and string.match(fields[6] or '', '^%d+ (%d+) ')
  if token then return token + 0, token + 0 end
end
-- Effect exclusion: apply runs only if the token is one of the last grant's, in the run that reads
-- it in the lock. So from the moment at which a successor holds, nobody before it writes; a hold
-- that was released writes no more either. The tokens of one grant are those of a lease that a
-- process hands on among its goroutines, of which the lock does not know. Those the mark puts in
-- order: it is the highest token that came here. It is written first, so it refuses also what was
-- sent before and comes late, and a server that is out of memory, or a replica, refuses it and runs
-- nothing. It is kept for a day: no request is in flight for so long.
local first, last = grant(KEYS[1], first_key == 4 and KEYS[3])
local mark = redis.pcall('GET', KEYS[2])
if type(mark) == 'table' then return mark end
mark = tonumber(mark or '0') or 0
-- safeguard: fence-grant
if not first or token < first or token > last or token < mark then return {LOST, mark} end
mark = redis.pcall('SET', KEYS[2], ARGV[1], 'PX', '86400000')
if mark.err then return mark end
local keys, args = {}, {}
for n = first_key, #KEYS do keys[#keys + 1] = KEYS[n] end
for n = 3, #ARGV do args[#args + 1] = ARGV[n] end
local reply = apply(keys, args) -- safeguard: fence-mark-stays
if type(reply) == 'table' and reply.err then return reply end
return {OK, reply}
