-- PROBE(channel, 'guard' or left out) -> {command, error, ...} of those that were refused
-- Each command of the scripts is tried in a way that leaves nothing behind, on a key that is never
-- a lock. HDEL is first: like every release it is taken when out of memory, and after it so is HSET.
local channel, guard = unpack(ARGV)
local reply = {}
for _, command in ipairs({
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
  {'PUBLISH', channel, ''},
  guard and {'INFO', 'replication'},
}) do
  local result = redis.pcall(unpack(command))
  if type(result) == 'table' and result.err then
    reply[#reply + 1] = command[1]
    reply[#reply + 1] = result.err
  end
end
return reply
