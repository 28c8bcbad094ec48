-- TRYRELEASEALL(for each lock: id, keep) -> {OK, for each lock: 1 if it was released, or 0}
-- Plain exclusive claims of several locks, with no attempt in flight, each released by the short way of
-- RELEASE, which says why. Where that is not open, nothing is done: another holds, somebody waits. So
-- nobody is let in, which a guard might forbid.
-- uses: lib/short
-- The short string of a lock, see doc.go: a free one is 'h2 counter', a held one 'h2 counter margin
-- id count meta'. Scripts read and write it by what is here and no other way, and clients by
-- short.go. (These are no functions: making one costs the server a hundredth of a pair.)
local IS_FREE = '^h2 (%d+)$' -- matches that of a free lock: its counter
local IS_HELD = '^h2 (%d+) (%d+) ([^ ]+) (%d+) (.*)$' -- counter, margin, id, count, meta
local HELD_BY = '^h2 %d+ (%d+) ([^ ]+) ' -- of a held one, margin and id alone, which costs less
local H2 = 'h2 ' -- what it begins with; the counter is next
-- The same for a counter that is near the clock, in millions and the rest. (%d has 32 bits on some
-- servers, and %.0f costs twice as much.) It has 16 digits until the year 2286, and with it the
-- string has BARE bytes: all of that of a free lock.
local RECENT, BARE = 'h2 %d%06d', 19
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
