-- The short way: a lock in its short form. The same owner's, without a gap, and the lease only grows. Nothing is written but
-- the key's expiry, which Redis takes also when out of memory; and it is written always, as a replica, which may have missed the end
-- of the hold, must refuse to say yes.
if type(s) == 'string' and ARGV[4] == '0' then
  local margin, who = string.match(s, '^h2 %d+ (%d+) ([^ ]+) ')
  if who == id then
    local left = redis.call('PTTL', K) - margin
    if left > 0 then
      local r = redis.pcall('PEXPIRE', K, math.max(left, ARGV[2] + 1) + margin)
      if type(r) == 'table' and r.err then return r end
      return OK
    end
  end
end
