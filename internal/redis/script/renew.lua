-- RENEW(id, ttl, keep, minimum token, state, rule)
--   -> OK | {OK} | {LOST} | {UNFIT, why} | {FOREIGN, why}
-- The state is that of lib/state, the rule that of lib/guard. From the minimum token on they may be
-- left out at the end: 0, '', none.
local id, ttl, keep, minimum, state, rule = unpack(ARGV)
local key = KEYS[1]
-- uses: lib/short
local OK, LOST, FOREIGN, QUARANTINE, UNFIT = 1, 3, 4, 7, 8
-- uses: lib/guard
local refusal, closed
if guard then refusal, closed = guard() end
if refusal then return refusal end
local stored = redis.pcall('GET', key)

-- The short way: one exclusive holder, and nobody waits. The lease only grows. Nothing is written
-- but the key's expiry, which is taken also when out of memory. It is written always: a replica,
-- which may have missed the end of the hold, must refuse to say yes.
local function short()
  local margin, owner = string.match(stored, HELD_BY)
  if owner ~= id then return end -- safeguard: renew-owner
  local left = redis.call('PTTL', key) - margin
  if left <= 0 then return end -- safeguard: renew-ended
  local reply = redis.pcall('PEXPIRE', key, math.max(left, ttl + 1) + margin)
  return type(reply) == 'table' and reply or OK
end
local raises, leaves = minimum and minimum ~= '0', state and state ~= ''
local reply = type(stored) == 'string' and not raises and not leaves and short()
if reply then return reply end
-- uses: lib/run lib/clock lib/group lib/tombstones lib/lock lib/state lib/holders lib/queue

-- raise makes the token of id's hold, which extend has found, least at least, and with it those of
-- the same re-entrant owner. What is granted later is above it, and above what the hold has
-- reserved.
local function raise(least)
  if least > 4503599627370496 then damaged('minimum token') end
  if lock.owner == id then
    local _, count = tokens()
    lock.counter = math.max(lock.counter, least + count - 1)
    return
  end
  lock.counter = math.max(lock.counter, least)
  local first = find_hold()
  local last = first
  if lock.mode == 'r' then first, last = 1, lock.holders end
  for n = first, last do
    local hold = read_slot(n)
    if hold.token < least then
      hold.token = least
      write_slot(n, hold)
    end
  end
end

local function long()
  load('h:' .. id)
  local code = extend(tonumber(ttl)) and OK or LOST
  if code == OK and raises then raise(tonumber(minimum)) end
  if code == OK and leaves then leave_state('0', state) end
  advance() -- another's lease may be over
  write_state()
  return commit(tonumber(keep), true, {code})
end
return answer(long)
