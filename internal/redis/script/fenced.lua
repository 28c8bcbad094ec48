-- FENCED(token, first, the program's arguments …) -> {OK, reply} | {LOST, token of the mark or 0}
-- apply, before this, is the program's own script as a function. KEYS are the lock, the mark, in
-- the string dialect the side key, and the program's keys, of which first says where they begin.
local token, first_key = tonumber(ARGV[1]), tonumber(ARGV[2])
local OK, LOST = 1, 3
-- uses: lib/short lib/grant
-- Effect exclusion: apply runs only if the token is one of the last grant's, in the run that reads
-- it in the lock. So from the moment at which a successor holds, nobody before it writes; a hold
-- that was released writes no more either. The tokens of one grant are those of a lease that a
-- process hands on among its goroutines, of which the lock does not know. Those the mark puts in
-- order: it is the highest token that came here. It is written first, so it refuses also what was
-- sent before and comes late, and a server that is out of memory, or a replica, refuses it and runs
-- nothing. It is kept for a day: no request is in flight for so long.
local first, last = grant(KEYS[1], first_key == 4 and KEYS[3])
local mark = redis.pcall('GET', KEYS[2])
if type(mark) == 'table' then return mark end
mark = tonumber(mark or '0') or 0
-- safeguard: fence-grant
if not first or token < first or token > last or token < mark then return {LOST, mark} end
mark = redis.pcall('SET', KEYS[2], ARGV[1], 'PX', '86400000')
if mark.err then return mark end
local keys, args = {}, {}
for n = first_key, #KEYS do keys[#keys + 1] = KEYS[n] end
for n = 3, #ARGV do args[#args + 1] = ARGV[n] end
local reply = apply(keys, args) -- safeguard: fence-mark-stays
if type(reply) == 'table' and reply.err then return reply end
return {OK, reply}
