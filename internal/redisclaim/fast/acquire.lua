-- The short way for a key where nobody else is in the game: one exclusive claim, no line, no group, no tombstones. Without
-- g there is neither line nor group, so o and x say all there is to say. Everything else goes the long way below.
if not g and not z and ARGV[5] == 'x' then
  if not o then
    -- Free, and nobody stands in line, so nobody is overtaken. The token is above every earlier one: by the counter while the
    -- key lives, by the clock after it is gone. Reserved ones follow it.
    local ttl, token = tonumber(ARGV[2]), math.max(f + 1, us)
    local top = token + ARGV[7] - 1
    if top > LAST then return {FOREIGN, 'a lock whose token counter is used up'} end
    x = text(now + 1 + ttl) -- one more: now was rounded down, and a lease may be longer than asked but never shorter
    -- The first write, and one command: either all of the grant is stored or none. All checks are behind us.
    local r
    if top == token then
      r = redis.pcall('HSET', K, 'v', 'h1', 'o', id, 'x', x, 'f', text(top), 'm', ARGV[4])
    else
      r = redis.pcall('HSET', K, 'v', 'h1', 'o', id, 'x', x, 'f', text(top), 'm', ARGV[4], 'b', text(token))
    end
    if type(r) == 'table' and r.err then return r end
    -- What follows only collects garbage. If a server refused it, the grant above would still be true: the answer is yes.
    redis.pcall('PEXPIRE', K, text(1 + ttl + ARGV[3] + ahead(top)))
    return {OK, token, top - token + 1}
  end
  -- Someone else's lease has not run out. x and now are whole, so at least 1 ms remains: never 0, which means "unknown".
  if x > now and o ~= id and ARGV[9] == '0' then return {HELD, x - now, m or '', 0, f} end
end
