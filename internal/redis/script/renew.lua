-- RENEW(id, ttl, keep, minimum token or 0; or these and a state: see lib/state)
--   -> OK | {OK} | {LOST} | {UNFIT, why} | {FOREIGN, why}
local OK, LOST, FOREIGN, QUARANTINE, UNFIT = 1, 3, 4, 7, 8
-- uses: lib/guard
local key, id = KEYS[1], ARGV[1]
local refusal, closed
if guard then refusal, closed = guard() end
if refusal then return refusal end
local stored = redis.pcall('GET', key)

-- The short way: one exclusive holder, and nobody waits. The lease only grows. Nothing is written
-- but the key's expiry, which is taken also when out of memory. It is written always: a replica,
-- which may have missed the end of the hold, must refuse to say yes.
local function short()
  local margin, owner = string.match(stored, '^h2 %d+ (%d+) ([^ ]+) ')
  if owner ~= id then return end
  local left = redis.call('PTTL', key) - margin
  if left <= 0 then return end
  local reply = redis.pcall('PEXPIRE', key, math.max(left, ARGV[2] + 1) + margin)
  return type(reply) == 'table' and reply or OK
end
local leaves = #ARGV > (guard and 5 or 4)
local reply = type(stored) == 'string' and ARGV[4] == '0' and not leaves and short()
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
  local code = extend(tonumber(ARGV[2])) and OK or LOST
  if code == OK and ARGV[4] ~= '0' then raise(tonumber(ARGV[4])) end
  if leaves and code == OK then leave_state('0', ARGV[5]) end
  advance() -- another's lease may be over
  write_state()
  return commit(tonumber(ARGV[3]), true, {code})
end
return answer(long)
