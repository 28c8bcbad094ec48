-- The short way: a lock in its short form. The same owner's, without a gap, and the lease only grows. Nothing is written but
-- the key's expiry, which Redis takes also when out of memory.
if type(s) == 'string' and ARGV[4] == '0' then
  local margin, who = string.match(s, '^h2 %d+ (%d+) ([^ ]+) ')
  if who == id then
    local left = redis.call('PTTL', K) - margin
    if left > 0 then
      if left > ARGV[2] + 1 then return OK end
      local r = redis.pcall('PEXPIRE', K, ARGV[2] + 1 + margin)
      if type(r) == 'table' and r.err then return r end
      return OK
    end
  end
end
