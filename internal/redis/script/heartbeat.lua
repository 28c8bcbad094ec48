-- HEARTBEAT(keep, client, then for each claim: id, ttl of its place, lease)
--   -> {OK, '1' or '0' for each claim} | {UNFIT, why} | {FOREIGN, why}
-- A place that is still in the queue ('1') lasts for its ttl from now at least. A claim without one
-- ('0') was let in, or its place has lapsed or was left: its next ACQUIRE tells which. Whoever is next
-- is let in first, if something is over.
local OK, LOST, FOREIGN, QUARANTINE, UNFIT = 1, 3, 4, 7, 8
-- uses: lib/guard
local key, id = KEYS[1], ''
local refusal, closed
if guard then refusal, closed = guard() end
if refusal then return refusal end
-- uses: lib/clock lib/group

-- The short way: somebody holds and the head of the queue is alive, so nobody is to be let in. (A head
-- that could hold beside those who hold was let in by the script that made room, but for a guard's.)
local function keep()
  local fields, places = {'HMGET', key, 'v', 'o', 'x', 'g'}, {'HMGET', key}
  for i = 3, #ARGV - 2, 3 do fields[#fields + 1] = 'w:' .. ARGV[i] end
  fields = redis.pcall(unpack(fields))
  local owner, expires, group = fields[2], int(fields[3]), read_group(fields[4])
  read_clock()
  if fields[1] ~= 'h2' or not group or group.waiting == 0 or (group.holders > 0) == (owner ~= false) or
    (owner and not (expires and expires > now)) or (not owner and (guard or now >= group.soonest)) then
    return
  end
  places[3] = 'q:' .. text(group.head)
  for i = 5, #fields do
    if fields[i] then places[#places + 1] = 'q:' .. fields[i] end
  end
  local found = redis.pcall(unpack(places))
  local sets, waiting, at, latest = {'HSET', key}, {}, 1, group.latest
  local head = string.match(found[1] or '', '^(%d+) ')
  if not head or tonumber(head) <= now then return end
  for i = 3, #ARGV - 2, 3 do
    local n = #waiting + 1
    waiting[n] = '0'
    if fields[n + 4] then
      at = at + 1
      local ends, asks, who = string.match(found[at] or '', '^(%d+) %d+ [^ ]* ([^ ]+ %d+ ([^ ]+) .*)$')
      if who ~= ARGV[i] then return end
      if tonumber(ends) > now then
        waiting[n], ends = '1', math.max(ends, now + 1 + ARGV[i + 1])
        latest = math.max(latest, ends)
        sets[#sets + 1] = places[at + 2]
        sets[#sets + 1] = text(ends) .. ' ' .. ARGV[i + 2] .. ' ' .. ARGV[2] .. ' ' .. asks
      end
    end
  end
  if latest > group.latest then
    group.latest = latest + 1000 -- see outlast in lib/lock
    sets[#sets + 1] = 'g'
    sets[#sets + 1] = write_group(group)
  end
  if #sets > 2 and type(redis.pcall(unpack(sets))) ~= 'number' then return end -- out of memory
  if latest ~= group.latest then
    local needed = group.latest - now + ARGV[1]
    if redis.call('PTTL', key) < needed then redis.pcall('PEXPIRE', key, text(needed)) end
  end
  return {OK, table.concat(waiting)}
end
local reply = keep()
if reply then return reply end
local stored = redis.pcall('GET', key)
-- uses: lib/run lib/tombstones lib/lock lib/holders lib/queue

local function long()
  local numbers, places, waiting = {}, {}, {}
  for i = 3, #ARGV - 2, 3 do numbers[#numbers + 1] = 'w:' .. ARGV[i] end
  load(unpack(numbers))
  places[1] = 'q:' .. lock.head
  for _, field in ipairs(numbers) do
    if cache[field] then places[#places + 1] = 'q:' .. cache[field] end
  end
  fetch(places)
  advance()
  for i = 3, #ARGV - 2, 3 do
    local number, ends, asks = find_place(ARGV[i])
    local waits = number and ends > now
    if waits then
      write_place(number, math.max(ends, now + 1 + ARGV[i + 1]), ARGV[i + 2], ARGV[2], asks)
    end
    waiting[#waiting + 1] = waits and '1' or '0'
  end
  return commit(tonumber(ARGV[1]), true, {OK, table.concat(waiting)})
end
return answer(long)
