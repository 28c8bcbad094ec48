-- ACQUIRE(id, px, tail, queue, reserve, form, minimum token or 0, µs that it may be ahead, rule)
--   -> token | {SHORT, token, clock} | {OK, token, reserved}
--   | {OK, token, reserved, '+' and the state, or '-'} | {EARLY, ms}
--   | either with one more: the last token of a hold whose lease ran out
--   | {HELD, ms or 0, meta, position or 0, last token}
--   | {LOST} | {MISMATCH, limit in use} | {QUARANTINE, ms, why} | {UNFIT, why} | {FOREIGN, why}
-- The tail is 'keep id reserve meta' and px is TTL + keep + 1: the short way stores them as they
-- are. The queue is 'lease client ttl' of a place, 'w' for a claim that watches, or empty. The form
-- is 'x', 'mode,limit,owner' or 'mode,limit*weight,owner', with '+' in front for a claim that loads
-- the state, and '!every:awaited' in front for one that is not to be granted early, see lib/state. The
-- rule is that of lib/guard. From the queue on they may be left out at the end: nothing, 1, 'x', 0, 0,
-- none.
local id, px, tail, queue, reserve, form, minimum, ahead_by, rule = unpack(ARGV)
local key = KEYS[1]
-- uses: lib/short
local OK, HELD, LOST, FOREIGN, MISMATCH, QUARANTINE, UNFIT, EARLY, SHORT = 1, 2, 3, 4, 6, 7, 8, 9, 10
-- uses: lib/guard
local refusal, closed
if guard then refusal, closed = guard() end
if refusal or closed then return refusal or closed end
local stored = redis.pcall('GET', key)

local plain, waits = not form or form == 'x', queue and #queue > 1
local short = type(stored) == 'string' and stored
local counter = plain and (not stored and 0 or short and tonumber(string.match(short, IS_FREE)))

-- The short way: a plain exclusive claim, and a lock that is free, and nobody waits, so nobody is
-- overtaken. (It is no function: making one costs the server a hundredth of a pair.) The token is
-- above every earlier one: by the counter while the key lives, by the clock afterwards. A minimum
-- token is at most a quarter of the TTL ahead of the clock, and the key outlives any lease for
-- longer than that. Then the token does not tell the clock, so the reply does.
if counter then
  local time = redis.call('TIME')
  local clock = time[1] * 1000000 + time[2]
  local least = clock
  if minimum and minimum ~= '0' then least = math.max(clock, math.min(minimum, clock + ahead_by)) end
  local token = least
  if counter >= least then token = counter + 1 end -- safeguard: token-counter
  local last = token + (reserve or 1) - 1
  if last <= least + 10000 then -- else ahead of the clock: see NEAR in lib/clock
    -- The only write, and one command: all of the grant is stored or nothing.
    local value = string.format(RECENT, last / 1000000, last % 1000000) .. ' ' .. tail
    local reply = redis.pcall('SET', key, value, 'PX', px)
    return reply.err and reply or minimum and minimum ~= '0' and {SHORT, token, clock} or token
  end
end

-- A claim that watches marks the hold it meets by a blank at the end: else RELEASE publishes
-- nothing.
local function mark()
  if queue == 'w' and short and string.sub(short, -1) ~= ' ' then
    redis.pcall('SET', key, short .. ' ', 'KEEPTTL') -- if it is refused: a lost wake-up
  end
end

-- The short way of a refusal: another holds alone, and its lease runs.
if plain and short and not waits then
  local digits, margin, owner, _, meta = string.match(short, IS_HELD)
  -- Whole ms, so at least 1 is left: never 0, which is "unknown".
  local left = owner and owner ~= id and #digits == 16 and redis.call('PTTL', key) - margin
  if left and left > 0 then
    mark()
    return {HELD, left, meta, 0, tonumber(digits)}
  end
end
-- uses: lib/clock lib/group

-- The short way into the queue: a plain exclusive claim that does not wait yet, and another that
-- holds alone. While its lease runs nobody can be let in; places that lapsed are passed over by the
-- script that lets in. All checks come before the first write, which is refused when out of memory.
local function join()
  -- Before the clock: see lib/lock. safeguard: join-clock
  local left = type(stored) == 'string' and redis.call('PTTL', key)
  local owner, expires, counter, meta, count, group
  read_clock()
  if left then
    local margin
    counter, margin, owner, count, meta = string.match(stored, IS_HELD)
    expires, group = margin and now + left - margin, read_group()
  else
    local fields = redis.pcall('HMGET', key, 'v', 'o', 'x', 'f', 'm', 'g', 'z', 'w:' .. id)
    if fields[1] ~= 'h2' or fields[7] or fields[8] then return end
    owner, expires, counter, meta = fields[2], int(fields[3]), fields[4], fields[5] or ''
    group = read_group(fields[6])
  end
  counter = int(counter)
  if not (owner and expires and counter and group) or owner == '' or owner == id or expires <= now or
    group.holders > 0 or counter > us + NEAR then
    return
  end
  local lease, client, ttl = string.match(queue, '^(%d+) ([^ ]*) (%d+)$')
  local ends = now + 1 + ttl
  local outlasts = math.max(ends, expires) > group.latest
  if outlasts then group.latest = math.max(ends, expires) + 1000 end -- see outlast in lib/lock
  group.tail, group.waiting = group.tail + 1, group.waiting + 1
  local number, joined = text(group.tail), nil
  local place = text(ends) .. ' ' .. lease .. ' ' .. client .. ' x ' .. tail
  if left then
    joined = redis.pcall('SET', key, stored, 'KEEPTTL') -- refused when out of memory, and DEL is not
    if joined.err then return joined end
    redis.pcall('DEL', key)
    joined = redis.pcall('HSET', key, 'v', 'h2', 'f', text(counter), 'o', owner, 'x', text(expires),
      'm', meta, 'b', count, 'g', write_group(group), 'q:' .. number, place, 'w:' .. id, number)
  else
    joined = redis.pcall('HSET', key, 'g', write_group(group), 'q:' .. number, place, 'w:' .. id, number)
  end
  if type(joined) ~= 'number' then return joined end
  if outlasts then -- always if it was a string: the HASH in its place has no expiry yet
    local lives, needed = left or redis.pcall('PTTL', key), group.latest - now + px
    if type(lives) ~= 'number' then lives = -1 end
    if left or lives < needed then redis.pcall('PEXPIRE', key, text(math.max(lives, needed))) end -- safeguard: join-expiry
  end
  return {HELD, group.waiting == 1 and expires - now or 0, meta, group.waiting, counter}
end
local reply = plain and waits and stored and (short and moving() or join())
if reply then return reply end
-- uses: lib/run lib/tombstones lib/lock lib/state lib/holders lib/queue

-- position returns that of the place number. With gaps and far behind it may be too high.
local function position(number)
  local n, fields = number - lock.head + 1, {}
  if n == 1 or lock.tail - lock.head + 1 == lock.waiting then return n end
  if n > STEPS then return math.min(n, lock.waiting) end
  for i = lock.head, number - 1 do fields[#fields + 1] = 'q:' .. i end
  fetch(fields)
  for _, field in ipairs(fields) do
    if not get(field) then n = n - 1 end
  end
  return n
end

-- held says who holds, and when a claim at place number (none for nil) should ask again: the head
-- for the queue, a claim that does not wait in it for itself, the others never.
local function held(number)
  local at, ms = number and position(number) or 0, 0
  local meta = lock.holders > 0 and read_slot(1).meta or lock.owner and get('m') or ''
  if more then
    ms = 1
  elseif at <= 1 then
    local ends = LAST
    if lock.owner and lock.expires > now then
      ends = lock.expires
    elseif lock.holders > 0 then
      -- lock.soonest may be early, as renewals do not move it: look at all while they are not many.
      local fields = {}
      if lock.holders > STEPS then ends, meta = lock.soonest, '' end
      for n = 1, lock.holders <= STEPS and lock.holders or 0 do fields[n] = 'k:' .. n end
      fetch(fields)
      for n = 1, #fields do
        local hold = read_slot(n)
        if hold.ends < ends then ends, meta = hold.ends, hold.meta end -- safeguard: ask-at-the-soonest
      end
    end
    local head = not number and lock.waiting > 0 and get('q:' .. lock.head)
    if head then ends = math.min(ends, read_place(head).ends) end -- safeguard: ask-after-the-head
    ms = math.max(1, ends - now)
  end
  return {HELD, ms, meta, at, lock.counter}
end

-- granted is the reply of a grant. What refuses the state refuses the claim: nothing is written
-- yet.
local function granted(claim, token, count)
  local reply = {OK, token, count}
  if claim.loads then
    local state = read_state()
    if refused(state) then stop(state) end
    reply[4] = state
  end
  if lapsed then reply[#reply + 1] = lapsed end -- safeguard: redis-took-over
  return reply
end

local function long()
  load('m', 'w:' .. id)
  -- A release of this id came first: nobody believes in this attempt any more, so it must not hold.
  if isTombstoned(lock.tombs, id) then return {LOST} end -- safeguard: tombstone
  local lease, client, place_ttl = string.match(queue or '', '^(%d+) ([^ ]*) (%d+)$')
  local claim = read_place('0 0  ' .. (form or 'x') .. ' ' .. tail)
  local ttl = px - claim.keep - 1
  if minimum then claim.min_token = math.min(minimum, us + ahead_by) end

  advance(id)

  -- An earlier attempt was granted and its reply lost, or it was sent twice, or the key was handed
  -- over to this claim, which says that it lives. The same hold, so the same token.
  local token, count = extend(ttl)
  if token then return commit(claim.keep, true, granted(claim, token, count)) end
  local n, hold = find_hold()
  if hold then drop(n, hold) end -- it is over, and purge has not come to it yet
  local left = claim.every and too_early(claim.every, claim.awaited)
  if left then return commit(claim.keep, true, {EARLY, left}) end
  local number, ends, asks, mode = find_place(id)
  if number and ends <= now then -- it lapsed in the middle, and advance looks at the head only
    leave(number, id, mode)
    number = nil
  end

  if claim.mode == 'p' and (lock.mode == 'p' or lock.permits > 0) and claim.limit ~= lock.limit and
    not number then
    -- If those who are not looked at yet may all be gone, it is to ask again, but not to wait.
    return commit(claim.keep, true, more and {HELD, 1, '', 0, lock.counter} or {MISMATCH, lock.limit})
  end

  -- Nobody overtakes: advance has let in all it could, so those that still wait are before this one.
  -- But another hold of a re-entrant owner that holds takes the key from nobody, and might wait for
  -- itself.
  if fits(claim) and (lock.waiting == 0 or lock.mode == 'r') then
    if number then leave(number, id, mode) end
    token, count = admit(claim, ttl)
    return commit(claim.keep, false, granted(claim, token, count))
  end

  local kept = number ~= nil
  if place_ttl then
    if not kept then
      number, ends, asks = lock.tail + 1, 0, claim.asks
      lock.tail, lock.waiting = number, lock.waiting + 1
      if claim.mode == 'p' then lock.permits, lock.limit = lock.permits + 1, claim.limit end
      changes['w:' .. id] = text(number)
    end
    if mode == 'x' and claim.mode == 'x' then asks = claim.asks end -- a repeat may have another meta
    write_place(number, math.max(ends, now + 1 + place_ttl), lease, client, asks)
  end
  mark()
  return commit(claim.keep, kept or not place_ttl, held(number))
end
return answer(long)
