-- RENEW(id, ttl, keep) -> {OK} | {LOST} | {FOREIGN, why}
local ttl, keep = tonumber(ARGV[2]), tonumber(ARGV[3])

-- A hold that ended is not revived, even if nobody took the key since: the owner may have been told that it lost it.
if o ~= id or x <= now then return lost() end

-- Still this owner's, without a gap. The lease only grows. PEXPIRE first: Redis takes it when out of memory, and HSET after
-- it. If HSET were refused all the same, the lease would be what it was, and the error says so.
x = math.max(x, now + 1 + ttl)
local r = redis.pcall('PEXPIRE', K, life(keep, f))
if type(r) == 'table' and r.err then return r end
r = redis.pcall('HSET', K, 'x', text(x))
if type(r) == 'table' and r.err then return r end
return {OK}
