-- The short way: an exclusive hold without a line behind it, and no attempt of it under way, so that no tombstone is needed.
-- The owner is compared in the script that deletes, so a late release never frees the next holder. HDEL goes first because
-- Redis takes it when out of memory; f stays, so that the next token is above this one.
if o == id and ARGV[2] == '0' and not g and not z then
  local r = redis.pcall('HDEL', K, 'o', 'x', 'm', 'b')
  if type(r) == 'table' and r.err then return r end
  redis.pcall('PEXPIRE', K, text(ARGV[3] + ahead(f)))
  -- After the deletion: whoever is woken finds the key free. Before it, a waiter could ask, be refused, and sleep beside a
  -- free lock. A user that may not publish has released all the same: those who wait ask again by themselves.
  redis.pcall('PUBLISH', ARGV[4], 'free')
  if x > now then return {OK} end
  return {EXPIRED}
end
