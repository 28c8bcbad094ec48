-- INSPECT(how many locks, unless it is one) -> {OK, seconds and µs of the clock, then what is
-- stored of each lock: {} | {value, ms left} | {field, value, …} | {0} for what is no lock}
-- Reads only: it tells what was true at this instant. Of several locks it tells of the first ones,
-- of one at least: those behind ENOUGH values are left to the next script, so that this one is
-- short. Whoever asks makes sense of it: here that would take the server four times as long.
local OK, ENOUGH = 1, 1000
local time, values = redis.call('TIME'), 0
local reply = {OK, time[1], time[2]}
for n = 1, tonumber(ARGV[1] or '1') do
  local stored, key = {}, KEYS[n]
  local text = redis.pcall('GET', key)
  if type(text) == 'string' then
    stored = {text, redis.call('PTTL', key)}
  elseif text then
    stored = redis.pcall('HGETALL', key)
    if stored.err and not string.find(stored.err, 'WRONGTYPE', 1, true) then return stored end
    if stored.err then stored = {0} end
  end
  reply[n + 3], values = stored, values + #stored
  if values >= ENOUGH then break end
end
return reply
