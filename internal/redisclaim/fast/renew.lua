-- The short way: an exclusive hold without a line behind it. The same owner's, without a gap, and the lease only grows.
-- PEXPIRE first: Redis takes it when out of memory, and HSET after it. If HSET were refused all the same, the lease would be
-- what it was, and the error says so.
if o == id and x > now and not g and not z then
  x = math.max(x, now + 1 + tonumber(ARGV[2]))
  local r = redis.pcall('PEXPIRE', K, text(x - now + ARGV[3] + ahead(f)))
  if type(r) == 'table' and r.err then return r end
  r = redis.pcall('HSET', K, 'x', text(x))
  if type(r) == 'table' and r.err then return r end
  return {OK}
end
