-- RELEASE(id, keep, tombstone ms or 0, which may be left out)
--   -> OK | EXPIRED | {OK} | {EXPIRED} | {LOST} | {FOREIGN, why}
-- uses: lib/codes lib/guard
local key, id = KEYS[1], ARGV[1]
local refusal, closed
if guard then refusal, closed = guard() end
if refusal and refusal[1] ~= UNFIT then return refusal end
local stored = redis.pcall('GET', key)
local none_in_flight = not ARGV[3] or ARGV[3] == '0'

-- The short way: one exclusive holder, nobody waits, and no attempt in flight that needs a tombstone.
-- The owner is compared in the script that frees, so a late release never frees the next holder. The
-- counter stays, and the key's expiry with it: what is left of the lease and then the margin.
local function short()
  local free, margin, owner = string.match(stored, '^(h2 %d+) (%d+) ([^ ]+) ')
  if owner ~= id then return end
  local left = redis.call('PTTL', key)
  -- Out of memory: the long way frees all the same.
  if left <= 0 or redis.pcall('SET', key, free, 'KEEPTTL').err then return end
  -- After the change: whoever is woken finds the key free. A user that may not publish has released
  -- all the same: those who wait ask again by themselves.
  redis.pcall('PUBLISH', key .. ':free', 'free')
  return left > margin + 0 and OK or EXPIRED
end
local reply = type(stored) == 'string' and none_in_flight and short()
if reply then return reply end
-- uses: lib/run lib/clock lib/tombstones lib/lock lib/holders lib/queue

-- The id holds, or waits, or neither; one that was handed the key and did not ask yet holds.
local function long()
  load('h:' .. id, 'w:' .. id)
  local code, gone = LOST, false
  local n, hold = find_hold()
  if lock.owner == id then
    code, gone = lock.expires > now and OK or EXPIRED, true
    turn(false, 0, false, false)
  elseif hold then
    code, gone = hold.ends > now and OK or EXPIRED, true
    drop(n, hold)
  end
  local number, _, _, mode = find_place(id)
  if number then
    gone = true
    leave(number, id, mode)
  end
  advance()
  if not none_in_flight then
    bury(lock.tombs, id, tonumber(ARGV[3]))
    lock.buried = true
  end
  -- Those who do not wait in the queue are woken if one of them could be let in.
  if gone and lock.waiting == 0 and not (lock.owner and lock.expires > now) and (lock.holders == 0 or
    lock.mode == 's' or (lock.mode == 'p' and lock.holders < lock.limit)) then
    messages[#messages + 1] = {key .. ':free', 'free'}
  end
  return commit(tonumber(ARGV[2]), true, {code})
end
return answer(long)
