-- ACQUIRE(id, ttl, keep, meta) -> {OK, token} | {HELD, remaining ms, meta} | {LOST} | {FOREIGN, why}
local ttl, keep = tonumber(ARGV[2]), tonumber(ARGV[3])

-- A release of this id was here first, so this attempt is late: nobody believes in it any more, and it must not hold.
if buried(id) then return {LOST} end

if o == id and x > now then
  -- The reply to the first attempt was lost, or it was sent twice. Still the same hold, so the same token: f is the last
  -- grant's. PEXPIRE goes first because Redis takes it when out of memory, and then takes HSET from the same script.
  x = math.max(x, now + 1 + ttl)
  local r = redis.pcall('PEXPIRE', K, life(keep, f))
  if type(r) == 'table' and r.err then return r end
  r = redis.pcall('HSET', K, 'x', text(x))
  if type(r) == 'table' and r.err then return r end
  return {OK, f}
end

-- Someone else's lease has not run out. x and now are whole, so at least 1 ms remains: never 0, which means "unknown".
if o and x > now then return {HELD, x - now, m or ''} end

-- Free: no owner, or its lease has run out by this clock. The owner is overwritten only here, so leases of two owners never
-- overlap. The token is above every earlier one: by the counter while the key lives, by the clock after it is gone.
local token = math.max(f + 1, us)
if token >= 9007199254740991 then return {FOREIGN, 'a lock whose token counter is used up'} end
x = now + 1 + ttl -- one more: now was rounded down, and a lease may be longer than asked but never shorter
local fields = {'v', 'h1', 'o', id, 'x', text(x), 'f', text(token), 'm', ARGV[4], 's', text(now)}
if stale and #tombs > 0 then
  fields[13], fields[14] = 'z', graves()
end
-- The first write, and one command: either all of the grant is stored or none. All checks are behind us.
local r = redis.pcall('HSET', K, unpack(fields))
if type(r) == 'table' and r.err then return r end
-- What follows only collects garbage. If a server refused it, the grant above would still be true, so the answer is yes.
if stale and #tombs == 0 then redis.pcall('HDEL', K, 'z') end
redis.pcall('PEXPIRE', K, life(keep, token))
return {OK, token}
