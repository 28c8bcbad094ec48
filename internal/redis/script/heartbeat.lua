-- HEARTBEAT(how many locks, client, then for each lock: keep, how many claims, and for each claim:
--   id, ttl of its place, lease; and at the end the guard's rule, if there is one)
--   -> {OK, for each lock: positions, last token, ms or 0, meta} | {UNFIT, why} | {FOREIGN, why}
-- A place that is still in its queue has a position, and lasts for its ttl from now at least. A
-- claim without one (position 0) was let in, or its place has lapsed or was left: its next ACQUIRE
-- tells which. So it does for one whose owner holds by another claim: it is kept, and has none, as
-- it enters past the queue. The next waiter is let in first, if something is over. ms is for the
-- lowest position. Of several locks only those are looked after that take the short way, so that the
-- script is short: without positions nothing was done about a lock, and it is to be asked about
-- alone.
local OK, LOST, FOREIGN, QUARANTINE, UNFIT = 1, 3, 4, 7, 8
local how_many, client = unpack(ARGV)
local mark = KEYS[how_many + 1]
local locks, KEYS, rule = KEYS, {KEYS[1], mark}, mark and ARGV[#ARGV] -- what libraries see: one lock
-- uses: lib/guard
local key, id, several = KEYS[1], '', how_many ~= '1'
local refusal, closed
if guard then refusal, closed = guard() end
if refusal then return refusal end
-- uses: lib/clock lib/group
read_clock()

-- position is that of place number; with gaps in the queue it may be too high.
local function position(number, group)
  return text(math.min(number - group.head + 1, group.waiting))
end

-- The short way: somebody holds and the head of the queue is alive, so nobody is to be let in. (A
-- head that could hold beside those who hold was let in by the script that made room, but for a
-- guard's, and for those beyond the first STEPS, whom the next script of another verb lets in.) Nor
-- does a re-entrant owner hold, who might enter again. The claims of the lock at key are in ARGV from
-- first to last.
local function keep(key, margin, first, last)
  local fields, places = {'HMGET', key, 'v', 'o', 'x', 'g', 'f', 'm'}, {'HMGET', key}
  for i = first, last, 3 do fields[#fields + 1] = 'w:' .. ARGV[i] end
  fields = redis.pcall(unpack(fields))
  local owner, expires, group, counter = fields[2], int(fields[3]), read_group(fields[4]), int(fields[5])
  if fields[1] ~= 'h2' or not group or not counter or group.waiting == 0 or group.mode == 'r' or
    (group.holders > 0) == (owner ~= false) or (owner and not (expires and expires > now)) or
    (not owner and (guard or now >= group.soonest)) then
    return
  end
  places[3] = 'q:' .. text(group.head)
  for i = 7, #fields do
    if fields[i] then places[#places + 1] = 'q:' .. fields[i] end
  end
  local found = redis.pcall(unpack(places))
  local sets, positions, at, latest, ms = {'HSET', key}, {}, 1, group.latest, 0
  local head = string.match(found[1] or '', '^(%d+) ')
  if not head or tonumber(head) <= now then return end
  for i = first, last, 3 do
    local name, ttl, lease = unpack(ARGV, i, i + 2)
    local n = #positions + 1
    local number = fields[n + 6]
    positions[n] = '0'
    if number then
      at = at + 1
      local ends, asks, who = string.match(found[at] or '', '^(%d+) %d+ [^ ]* ([^ ]+ %d+ ([^ ]+) .*)$')
      if who ~= name then return end
      if tonumber(ends) > now then
        positions[n], ends = position(number, group), math.max(ends, now + 1 + ttl)
        if number + 0 == group.head then ms = (owner and expires or group.soonest) - now end -- safeguard: heartbeat-asks
        latest = math.max(latest, ends)
        sets[#sets + 1] = places[at + 2]
        sets[#sets + 1] = text(ends) .. ' ' .. lease .. ' ' .. client .. ' ' .. asks
      end
    end
  end
  if latest > group.latest then
    group.latest = latest + 10000 -- see outlast in lib/lock: so that most heartbeats leave it alone
    sets[#sets + 1] = 'g'
    sets[#sets + 1] = write_group(group)
  end
  if #sets > 2 and type(redis.pcall(unpack(sets))) ~= 'number' then return end -- out of memory
  if latest ~= group.latest and sets[#sets - 1] == 'g' then
    local needed = group.latest - now + margin
    if redis.call('PTTL', key) < needed then redis.pcall('PEXPIRE', key, text(needed)) end
  end
  return table.concat(positions, ' '), counter, ms, owner and fields[6] or ''
end

local reply, first = {OK}, 3
for n = 1, tonumber(how_many) do
  local margin, claims = unpack(ARGV, first, first + 1)
  local last = first + 1 + 3 * claims
  local positions, counter, ms, meta = keep(locks[n], margin, first + 2, last)
  if positions or several then
    local i = #reply
    reply[i + 1], reply[i + 2] = positions or '', counter or 0
    reply[i + 3], reply[i + 4] = ms or 0, meta or ''
  end
  first = last + 1
end
if #reply > 1 then return reply end
local stored = redis.pcall('GET', key)
-- uses: lib/run lib/tombstones lib/short lib/lock lib/state lib/holders lib/queue

local function long()
  local margin, claims = unpack(ARGV, 3, 4)
  local last = 4 + 3 * claims
  local numbers, places, positions, ms = {'m'}, {}, {}, 0
  for i = 5, last, 3 do numbers[#numbers + 1] = 'w:' .. ARGV[i] end
  load(unpack(numbers))
  places[1] = 'q:' .. lock.head
  for i = 2, #numbers do
    if cache[numbers[i]] then places[#places + 1] = 'q:' .. cache[numbers[i]] end
  end
  fetch(places)
  advance()
  for i = 5, last, 3 do
    local name, ttl, lease = unpack(ARGV, i, i + 2)
    local n = #positions + 1
    local number, ends, asks = find_place(name)
    positions[n] = '0'
    if number and ends > now then
      write_place(number, math.max(ends, now + 1 + ttl), lease, client, asks)
      -- safeguard: heartbeat-owner
      if lock.mode ~= 'r' or not fits(read_place(get('q:' .. number))) then
        positions[n] = position(number, lock)
      end
      if number == lock.head then
        ms = math.max(0, (lock.owner and lock.expires or lock.holders > 0 and lock.soonest or now) - now)
      end
    end
  end
  if more then ms = 1 end -- safeguard: heartbeat-more
  return commit(tonumber(margin), true,
    {OK, table.concat(positions, ' '), lock.counter, ms, lock.owner and get('m') or ''})
end
return answer(long)
