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
