-- Start of every script but the probe. Scripts run one at a time, so what is true after a command stays true until the script
-- ends: no race is inside a script. pcall, so that Redis' own code (WRONGTYPE, OOM, READONLY) stays the first word of the
-- reply in every server version.
--
-- s is the lock's short form, false if there is no key, and an error (of type table) if the key is not a string: so is the
-- long form, which is a HASH.
local K, id = KEYS[1], ARGV[1]
local OK, HELD, LOST, FOREIGN, EXPIRED, MISMATCH = 1, 2, 3, 4, 5, 6
local s = redis.pcall('GET', K)
