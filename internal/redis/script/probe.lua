-- PROBE(channel) -> names of the commands that the user may not run, on a key that is never a lock
-- Each command is tried in a way that leaves nothing behind. HDEL is first: like every release it is taken when out of
-- memory, and after it so is HSET. A refusal for another reason (a replica, a failing disk) is returned as it is.
local denied = {}
for _, c in ipairs({
  {'HDEL', KEYS[1], '-'},
  {'TIME'},
  {'GET', KEYS[1]},
  {'HGET', KEYS[1], 'v'},
  {'HMGET', KEYS[1], 'v'},
  {'HGETALL', KEYS[1]},
  {'HSET', KEYS[1], '-', ''},
  {'PTTL', KEYS[1]},
  {'PEXPIRE', KEYS[1], 1000},
  {'SET', KEYS[1], '', 'PX', 1},
  {'DEL', KEYS[1]},
  {'PUBLISH', ARGV[1], ''},
}) do
  local r = redis.pcall(unpack(c))
  if type(r) == 'table' and r.err then
    if string.find(r.err, 'NOPERM', 1, true) or string.find(r.err, 'user executing the script', 1, true)
        or string.find(r.err, 'ACL failure', 1, true) then
      denied[#denied + 1] = c[1]
    elseif not string.find(r.err, 'WRONGTYPE', 1, true) then -- that is what another's probe may have left for a ms
      return r
    end
  end
end
return denied
