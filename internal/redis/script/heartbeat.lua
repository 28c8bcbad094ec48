-- HEARTBEAT(keep, client, then for each claim: id, ttl of its place, lease)
--   -> {OK, '1' or '0' for each claim} | {UNFIT, why} | {FOREIGN, why}
-- A place that is still in the queue ('1') lasts for its ttl from now at least. A claim without one
-- ('0') was let in, or its place has lapsed or was left: its next ACQUIRE tells which. Whoever is next
-- is let in first, if something is over.
-- uses: lib/codes lib/guard
local key, id = KEYS[1], ''
local refusal, closed
if guard then refusal, closed = guard() end
if refusal then return refusal end
local stored = redis.pcall('GET', key)
-- uses: lib/run lib/clock lib/tombstones lib/lock lib/holders lib/queue

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
