-- RENEW, as in renew.lua. The lock's own key ends with its lease, so what is not there has ended.
if o ~= id then
  local r = redis.pcall('HDEL', K, '-') -- a replica, which may lag behind the grant, must not say 'no'
  if type(r) == 'table' and r.err and not string.find(r.err, 'WRONGTYPE', 1, true) then return r end
  return {LOST}
end
local lease, keep, floor = ARGV[2] + 1, tonumber(ARGV[3]), tonumber(ARGV[4])
-- PEXPIRE first: Redis takes it when out of memory, and what follows in the same script.
local r = redis.pcall('PEXPIRE', K, text(math.max(lease, redis.call('PTTL', K))))
if type(r) == 'table' and r.err then return r end
if floor > f - count + 1 then f = floor + count - 1 end
r = keepside(lease, keep)
if r.err then return r end
return {OK}
