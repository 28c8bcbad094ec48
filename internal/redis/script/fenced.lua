-- FENCED(token, 1 or 2, the program's arguments …) -> {OK, reply} | {LOST, token of the mark or 0}
-- apply, before this, is the program's own script as a function. KEYS are the lock, the mark, in
-- the string dialect the side key (2 instead of 1), and the program's keys.
local OK, LOST = 1, 3
-- uses: lib/grant
-- Effect exclusion: apply runs only if the token is one of the last grant's, in the run that reads
-- it in the lock. So from the moment at which a successor holds, nobody before it writes; a hold
-- that was released writes no more either. The tokens of one grant are those of a lease that a
-- process hands on among its goroutines, of which the lock does not know. Those the mark puts in
-- order: it is the highest token that came here. It is written first, so it refuses also what was
-- sent before and comes late, and a server that is out of memory, or a replica, refuses it and runs
-- nothing. It is kept for a day, which no request spends on its way.
local token, first, last, mark = tonumber(ARGV[1]), grant(KEYS[1], ARGV[2] == '2' and KEYS[3])
mark = redis.pcall('GET', KEYS[2])
if type(mark) == 'table' then return mark end
mark = tonumber(mark or '0') or 0
if not first or token < first or token > last or token < mark then return {LOST, mark} end
mark = redis.pcall('SET', KEYS[2], ARGV[1], 'PX', '86400000')
if mark.err then return mark end
local keys, args = {}, {}
for n = ARGV[2] + 2, #KEYS do keys[#keys + 1] = KEYS[n] end
for n = 3, #ARGV do args[n - 2] = ARGV[n] end
local reply = apply(keys, args)
if type(reply) == 'table' and reply.err then return reply end
return {OK, reply}
