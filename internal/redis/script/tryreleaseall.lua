-- TRYRELEASEALL(for each lock: id, keep) -> {OK, for each lock: 1 if it was released, or 0}
-- Plain exclusive claims of several locks, with no attempt in flight, each released by the short way of
-- RELEASE, which says why. Where that is not open, nothing is done: another holds, somebody waits. So
-- nobody is let in, which a guard might forbid.
-- uses: lib/short
local OK = 1

local reply = {OK}
for i, key in ipairs(KEYS) do
  local id, margin = ARGV[2 * i - 1], ARGV[2 * i]
  local stored = redis.pcall('GET', key)
  local released = type(stored) == 'string' and
    string.find(stored, ' ' .. margin .. ' ' .. id .. ' ', BARE + 1, true) == BARE + 1 and -- safeguard: try-all-owner
    not redis.pcall('SET', key, string.sub(stored, 1, BARE), 'PX', margin).err
  if released and string.sub(stored, -1) == ' ' then redis.pcall('PUBLISH', key .. ':free', 'free') end
  reply[i + 1] = released and 1 or 0
end
return reply
