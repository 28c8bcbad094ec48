-- RELAY(id, next id, px, tail, line, reserve) -> as ACQUIRE, for the next id | 0, and nothing was done
-- RELEASE of a plain exclusive hold, with no attempt of it under way, and then ACQUIRE of a plain exclusive claim that stands in line, in
-- one step: nobody comes in between, and of those who stood in line already nobody is overtaken. That much is proved by what is checked
-- here before the first and only write; whatever is not as it is most often is left to the two of them.
--
-- Repeated, or late, it does nothing: the id does not hold any more. So a claim that came along is granted by it only while the hold lasts.
local settled = true
local along = {id = ARGV[2], tail = ARGV[4]}
do
  local linger, rest = string.match(ARGV[5], '^(%d+) (.*)$')
  along.linger, along.rest, along.keep = tonumber(linger), rest, tonumber(string.match(ARGV[4], '^(%d+) '))
end
if not along.linger or not along.keep then return 0 end
if type(s) == 'string' and not closed then
  local lives = redis.call('PTTL', K) -- before the clock: see common/lives.lua
  local f, margin, who = string.match(s, '^h2 (%d+) (%d+) ([^ ]+) ')
  if who == id and along.id ~= id and #f <= 16 and lives - margin > 0 then
    local t = redis.call('TIME')
    local us = t[1] * 1000000 + t[2]
    local token = math.max(f + 1, us)
    local top = token + ARGV[6] - 1
    if top > us + 10000 or redis.pcall('SET', K, string.format('h2 %.0f ', top) .. ARGV[4], 'PX', ARGV[3]).err then return 0 end
    return token
  end
end
