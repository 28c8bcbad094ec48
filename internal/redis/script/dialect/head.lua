-- The string dialect: the lock is 'SET key id NX PX ttl' and compare-and-delete, as the Redlock text, redsync, bsm/redislock,
-- node-redlock and redis-py have it, so it excludes all of them and is excluded by them. Beside it, in KEYS[2] of the same
-- slot, is what they do not have: 'h2 <f> <count> <id> <n> <tombstones><meta>': the last token; how many the last of ours has, who that is, and
-- what he says of himself; and, n bytes of them, acquisitions that were released while an attempt may be under way. It outlives the lock, and nobody else writes it.
local K, S, id = KEYS[1], KEYS[2], ARGV[1]
local OK, HELD, LOST, FOREIGN = 1, 2, 3, 4
