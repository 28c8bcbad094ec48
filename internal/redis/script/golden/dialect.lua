-- The string dialect:
--   acquire(id, px, tail, minimum token or 0, µs that it may be ahead)
--   renew(id, ttl, keep, minimum token or 0)
--   release(id, keep, ms of a tombstone or 0)
--   inspect()
-- that name first, and then what the arguments of the files of those names are. The lock is 'SET
-- key id NX PX ttl' and compare-and-delete, as the Redlock text, redsync, bsm/redislock,
-- node-redlock and redis-py have it: it excludes them and they exclude it. An owner that is not
-- ours is any string. Plain exclusive claims only.
--
-- KEYS[2], in the same slot, is what they do not have: 'h2 counter count id n <n bytes of
-- tombstones> meta': the last token, and how many our last hold had, its id and its Meta. It
-- outlives the lock.
-- uses: lib/run lib/clock lib/tombstones
-- Commands and their errors. Commands go through redis.pcall: its errors begin with the server's
-- own word (OOM, READONLY), those of redis.call with a line number on Redis 6.
local function refused(reply) return type(reply) == 'table' and reply.err end

-- stop ends way in answer(way) with reply. Nothing has been written then. (The reply is in a table,
-- as pcall of Redis 7 makes a text of an error with a field err.)
local function stop(reply) error({reply = reply}, 0) end

local function answer(way)
  local done, reply = pcall(way)
  if not done and type(reply) ~= 'table' then error(reply, 0) end
  return done and reply or reply.reply
end

-- run executes a command; if the server refuses it, its error is the script's reply.
local function run(...)
  local reply = redis.pcall(...)
  if refused(reply) then stop(reply) end
  return reply
end

-- primary stops at a replica, which may lag behind and must not say no: there HDEL is refused. It
-- deletes nothing, and is taken when out of memory, and so is all that follows it in the same
-- script.
local function primary()
  local reply = redis.pcall('HDEL', KEYS[1], '-')
  if refused(reply) and not string.find(reply.err, 'WRONGTYPE', 1, true) then stop(reply) end
end
-- The store's clock is the only clock: no client sends a time of day, only durations. It is read
-- once, because before Redis 7.2 it goes on within a script.
local us, now -- in µs and in whole ms
local function read_clock()
  local time = redis.call('TIME')
  us = time[1] * 1000000 + time[2]
  now = math.floor(us / 1000)
end

-- Numbers are stored as plain digits: tostring would write 1.7952e+15, and tonumber reads 'nan',
-- which no lease outlives. (%d is twice as quick, but has 32 bits on some servers.)
local DIGITS = string.format('%d', 4294967296) == '4294967296' and '%d' or '%.0f'
local LAST = 9007199254740990 -- the largest token: above 2^53, n + 1 may be n
local function text(n) return string.format(DIGITS, n) end
local function int(digits)
  local n = digits and #digits <= 16 and string.find(digits, '^%d+$') and tonumber(digits)
  return n and n <= LAST and n
end

-- Tokens end within NEAR µs of the clock, or of a minimum token, where that is possible: so they
-- rise also where all was lost but the clock. A counter further ahead is kept until the clock has
-- caught up.
local NEAR = 10000
local function ahead(counter) return math.max(0, 2 * math.ceil((counter - us) / 1000)) end
-- Tombstones, 'until id;': claims that were released while an attempt of them may be in flight. An
-- attempt that arrives before its tombstone ends is refused. Ids have no blank and no semicolon.

-- read_tombstones returns those that have not ended, nil if the list is damaged.
local function read_tombstones(list)
  local tombs, length = {ends = 0}, 0
  for ends, who in string.gmatch(list, '(%d+) ([^ ;]+);') do
    length = length + #ends + #who + 2
    ends = int(ends)
    if not ends then return end
    if ends > now then
      tombs[#tombs + 1] = {ends = ends, id = who}
      tombs.ends = math.max(tombs.ends, ends)
    end
  end
  return length == #list and tombs or nil
end

local function write_tombstones(tombs)
  local list = {}
  for i, tomb in ipairs(tombs) do list[i] = text(tomb.ends) .. ' ' .. tomb.id .. ';' end
  return table.concat(list)
end

local function isTombstoned(tombs, who)
  for _, tomb in ipairs(tombs) do
    if tomb.id == who then return true end
  end
end

-- addTombstone adds a tombstone for ms, in the place of an older one of the same id. There are 32
-- at most, so that everyone's work is bounded: then the one that ends first makes room.
local function addTombstone(tombs, who, ms)
  local first = 1
  for i = #tombs, 1, -1 do
    if tombs[i].id == who then table.remove(tombs, i) end
  end
  for i, tomb in ipairs(tombs) do
    if tomb.ends < tombs[first].ends then first = i end
  end
  if #tombs >= 32 then table.remove(tombs, first) end
  tombs[#tombs + 1] = {ends = now + 1 + ms, id = who}
  tombs.ends = math.max(tombs.ends, now + 1 + ms)
end
local OK, HELD, LOST, FOREIGN = 1, 2, 3, 4
local verb, id = unpack(ARGV)
local key, beside = KEYS[1], KEYS[2]
local counter, count, ours, meta, tombs = 0, 1, '', '', {ends = 0}
local owner

local function load()
  local stored
  owner, stored = redis.pcall('GET', key), redis.pcall('GET', beside)
  for _, reply in ipairs({owner, stored}) do
    if refused(reply) then
      stop(string.find(reply.err, 'WRONGTYPE', 1, true) and {FOREIGN, 'not a string'} or reply)
    end
  end
  read_clock()
  if not stored then
    if owner and owner == id then stop({FOREIGN, 'a lock of ours without its counter'}) end
    return
  end
  local length, rest
  counter, count, ours, length, rest = string.match(stored, '^h2 (%d+) (%d+) ([^ ]*) (%d+) (.*)$')
  counter, count, length = int(counter), int(count), int(length)
  if not (counter and count and length) or count < 1 or count > 1024 or
    (counter > 0 and count > counter) or length > #rest then
    stop({FOREIGN, 'a counter that is not one of ours, or damaged'})
  end
  if owner and owner == id and owner ~= ours then
    stop({FOREIGN, 'a lock of ours without its counter'})
  end
  tombs, meta = read_tombstones(string.sub(rest, 1, length)), string.sub(rest, length + 1)
  if not tombs then stop({FOREIGN, 'a lock with damaged tombstones'}) end
end

-- keep_beside writes the side key, which must outlive a lease of ms, the tombstones, and then keep.
local function keep_beside(ms, keep)
  local list = write_tombstones(tombs)
  ms = math.max(ms, tombs.ends - now) + keep + ahead(counter)
  run('SET', beside, 'h2 ' .. text(counter) .. ' ' .. text(count) .. ' ' .. ours .. ' ' .. #list ..
    ' ' .. list .. meta, 'PX', text(math.max(ms, run('PTTL', beside))))
end

local function acquire(px, tail, minimum, ahead_by)
  if isTombstoned(tombs, id) then return {LOST} end
  local keep, reserve, says = string.match(tail, '^(%d+) [^ ]+ (%d+) (.*)$')
  keep, reserve = tonumber(keep), tonumber(reserve)
  local lease = px - keep
  if owner == id then -- a repeat: the same tokens; a replica refuses to write the lease again
    lease = math.max(lease, run('PTTL', key))
    run('PEXPIRE', key, text(lease)) -- safeguard: dialect-repeat
    keep_beside(lease, keep) -- safeguard: dialect-repeat-kept
    return {OK, counter - count + 1, count}
  elseif owner then -- 0 ms is "unknown": a lock without an end
    return {HELD, math.max(0, run('PTTL', key)), owner == ours and meta or '', 0, counter}
  end
  local least = math.max(us, math.min(minimum, us + ahead_by))
  local token = math.max(counter + 1, least)
  count = math.max(1, math.min(reserve, least + NEAR - token)) -- as in admit of lib/holders
  counter = token + count - 1
  if counter > LAST then return {FOREIGN, 'a lock whose token counter is used up'} end
  ours, meta = id, says
  -- The counter first: a token stored and not granted is a gap, the other way round it comes twice.
  keep_beside(lease, keep)
  run('SET', key, id, 'PX', text(lease))
  return {OK, token, count}
end

-- The lock's own key ends with its lease, so what is not there is over.
local function renew(ttl, keep, minimum)
  if owner ~= id then
    primary() -- safeguard: dialect-primary-renew
    return {LOST}
  end
  local lease = ttl + 1
  -- PEXPIRE is taken when out of memory, and so is what follows it in the same script.
  run('PEXPIRE', key, text(math.max(lease, run('PTTL', key))))
  counter = math.max(counter, minimum + count - 1)
  keep_beside(lease, tonumber(keep)) -- safeguard: dialect-kept
  return {OK}
end

local function release(keep, tombstone)
  -- Taken when out of memory, not by a replica.
  if owner == id then run('DEL', key) else primary() end -- safeguard: dialect-primary-release
  if tombstone ~= '0' then
    addTombstone(tombs, id, tonumber(tombstone))
    keep_beside(0, tonumber(keep))
  end
  if owner ~= id then return {LOST} end
  redis.pcall('PUBLISH', key .. ':free', 'free')
  return {OK}
end

-- A peer's lock has no token.
local function inspect()
  if not owner then return {OK, counter} end
  local left = run('PTTL', key)
  if left < 0 then left = LAST end
  local token = owner == ours and counter - count + 1 or 0
  return {OK, counter, owner, token, left, owner == ours and meta or ''}
end

return answer(function()
  load()
  return ({acquire = acquire, renew = renew, release = release, inspect = inspect})[verb](unpack(ARGV, 3))
end)
