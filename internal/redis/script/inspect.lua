-- INSPECT(how many locks, unless it is one) -> {OK, seconds and µs of the clock, then what is
-- stored of each lock: '' | '$ms-left value' | '#field value …', in lines | '?' for what is no lock}
-- Reads only: it tells what was true at this instant. Of several locks it tells of the first ones,
-- of one at least: those behind ENOUGH values are left to the next script, so that this one is
-- short. Whoever asks makes sense of it: here that would take the server four times as long.
local OK, ENOUGH = 1, 1000
local time, values = redis.call('TIME'), 0
local reply = {OK, time[1], time[2]}
for n = 1, tonumber(ARGV[1] or '1') do
  local stored, key = '', KEYS[n]
  local value = redis.pcall('GET', key)
  if type(value) == 'string' then
    stored = '$' .. redis.call('PTTL', key) .. ' ' .. value
  elseif value then
    local fields = redis.pcall('HGETALL', key)
    if fields.err and not string.find(fields.err, 'WRONGTYPE', 1, true) then return fields end
    stored = fields.err and '?' or '#' .. table.concat(fields, '\n') -- no value of ours has one
    values = values + #fields
  end
  reply[n + 3] = stored
  if values >= ENOUGH then break end
end
return reply
