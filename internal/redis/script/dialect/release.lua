-- RELEASE, as in release.lua. DEL goes first, whoever holds: Redis takes it when out of memory, and what follows in the same
-- script; and a replica refuses it.
local keep, tomb = tonumber(ARGV[2]), tonumber(ARGV[3])
local r
if o == id then r = redis.pcall('DEL', K) else r = redis.pcall('HDEL', K, '-') end
if type(r) == 'table' and r.err and not string.find(r.err, 'WRONGTYPE', 1, true) then return r end
if tomb > 0 then
  bury(tomb)
  r = keepside(0, keep)
  if r.err then return r end
end
if o ~= id then return {LOST} end
redis.pcall('PUBLISH', K .. ':free', 'free')
return {OK}
