-- The short way: a lock in its short form, and no attempt of this claim under way, so that no tombstone is needed. The owner
-- is compared in the script that deletes, so a late release never frees the next holder. The counter stays, and the key's
-- expiry with it: what is left of the lease and then the margin.
if settled and type(s) == 'string' then
  local free, margin, who = string.match(s, '^(h2 %d+) (%d+) ([^ ]+) ')
  if who == id then
    local left = redis.call('PTTL', K)
    if left > 0 and not redis.pcall('SET', K, free, 'KEEPTTL').err then -- out of memory: the long way frees all the same
      -- After the change: whoever is woken finds the key free. Before it, a waiter could ask, be refused, and sleep beside a
      -- free lock. A user that may not publish has released all the same: those who wait ask again by themselves.
      redis.pcall('PUBLISH', K .. ':free', 'free')
      if left > margin + 0 then return OK end
      return EXPIRED
    end
  end
end
