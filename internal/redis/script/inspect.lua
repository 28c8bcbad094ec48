-- INSPECT()
--   -> {OK, last token, holders {{owner, mode, token, ms left, meta, id unless it is the owner,
--     weight unless it is 1}, …}, waiters {{owner, mode, meta, weight unless it is 1}, …}}
--   | {FOREIGN, why}
-- Reads only: it tells what was true at this instant. It reads what is stored, once, and never
-- counts from one number to another: a queue has gaps, and damage may have made them as long as you
-- like.
local OK, LOST, FOREIGN = 1, 3, 4
local key, id, closed = KEYS[1], '', false
local stored = redis.pcall('GET', key)
-- uses: lib/run lib/clock lib/group lib/tombstones lib/lock lib/state lib/holders lib/queue

local function long()
  local holders, numbers, waiters = {}, {}, {}
  load()
  if hash then
    local fields = run('HGETALL', key)
    if lock.holders > #fields / 2 then damaged('holders') end
    for i = 1, #fields, 2 do
      cache[fields[i]] = fields[i + 1]
      local number = int(string.match(fields[i], '^q:(%d+)$'))
      if number and number >= lock.head and number <= lock.tail then numbers[#numbers + 1] = number end
    end
    table.sort(numbers)
  end
  if lock.owner and lock.expires > now then
    holders[1] = {lock.owner, 'x', (tokens()), lock.expires - now, cache.m or ''}
  end
  for n = 1, lock.holders do
    local hold = read_slot(n)
    if hold.ends > now then
      local owner = hold.owner == '' and hold.id or hold.owner
      holders[#holders + 1] = {owner, lock.mode, hold.token, hold.ends - now, hold.meta, hold.id,
        hold.weight > 1 and hold.weight or nil}
    end
  end
  for _, number in ipairs(numbers) do
    local place = read_place(get('q:' .. number))
    if place.ends > now then
      waiters[#waiters + 1] = {place.owner, place.mode, place.meta,
        place.weight > 1 and place.weight or nil}
    end
  end
  return {OK, lock.counter, holders, waiters}
end
return answer(long)
