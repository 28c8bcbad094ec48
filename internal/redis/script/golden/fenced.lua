local function apply(KEYS, ARGV)
return redis.call('SET', KEYS[1], ARGV[1])
end
-- FENCED(token, 1 or 2, the program's arguments …) -> {OK, reply} | {LOST, token of the mark or 0}
-- apply, before this, is the program's own script as a function. KEYS are the lock, the mark, in
-- the string dialect the side key (2 instead of 1), and the program's keys.
local OK, LOST = 1, 3
-- uses: lib/grant
-- The grant: which tokens the last hold of a lock has, read from the lock in any of its forms. It
-- is for scripts that only ask whose turn it is. No clock is in it: as long as a lock names a hold,
-- no other was granted since, whether the lease still runs or not.

-- grant returns the first and the last token, or nothing if the last hold was released or
-- forgotten, or is not exclusive. beside is the side key of the string dialect.
local function grant(key, beside)
  local stored = redis.pcall('GET', key)
  if not stored then return end
  if beside then
    local side = redis.pcall('GET', beside)
    side = type(side) == 'string' and side or ''
    local counter, count, owner = string.match(side, '^h2 (%d+) (%d+) ([^ ]*) ')
    if counter and owner == stored then return counter - count + 1, counter + 0 end
    return
  end
  if type(stored) == 'string' then -- 'h2 counter margin id count meta', and less when it is free
    local counter, count = string.match(stored, '^h2 (%d+) %d+ [^ ]+ (%d+) ')
    if counter then return counter - count + 1, counter + 0 end
    return
  end
  local fields = redis.pcall('HMGET', key, 'v', 'o', 'f', 'b', 'g', 'k:1')
  if fields.err or fields[1] ~= 'h2' then return end
  if fields[2] and fields[3] then return fields[3] - (fields[4] or 1) + 1, fields[3] + 0 end
  -- All holds of a re-entrant owner have one token. Others who hold together are no exclusive hold.
  local token = fields[5] and string.find(fields[5], '^r ') and string.match(fields[6] or '', '^%d+ (%d+) ')
  if token then return token + 0, token + 0 end
end
-- The grant: which tokens the last hold of a lock has, read from the lock in any of its forms. It
-- is for scripts that only ask whose turn it is. No clock is in it: as long as a lock names a hold,
-- no other was granted since, whether the lease still runs or not.

-- grant returns the first and the last token, or nothing if the last hold was released or
-- forgotten, or is not exclusive. beside is the side key of the string dialect.
local function grant(key, beside)
  local stored = redis.pcall('GET', key)
  if not stored then return end
  if beside then
    local side = redis.pcall('GET', beside)
    side = type(side) == 'string' and side or ''
    local counter, count, owner = string.match(side, '^h2 (%d+) (%d+) ([^ ]*) ')
    if counter and owner == stored then return counter - count + 1, counter + 0 end
    return
  end
  if type(stored) == 'string' then -- 'h2 counter margin id count meta', and less when it is free
    local counter, count = string.match(stored, '^h2 (%d+) %d+ [^ ]+ (%d+) ')
    if counter then return counter - count + 1, counter + 0 end
    return
  end
  local fields = redis.pcall('HMGET', key, 'v', 'o', 'f', 'b', 'g', 'k:1')
  if fields.err or fields[1] ~= 'h2' then return end
  if fields[2] and fields[3] then return fields[3] - (fields[4] or 1) + 1, fields[3] + 0 end
  -- All holds of a re-entrant owner have one token. Others who hold together are no exclusive hold.
  local token = fields[5] and string.find(fields[5], '^r ') and string.match(fields[6] or '', '^%d+ (%d+) ')
  if token then return token + 0, token + 0 end
end
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
