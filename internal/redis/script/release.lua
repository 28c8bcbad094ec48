-- RELEASE(id, keep, tombstone, before, job, state, rule)
--   -> OK | EXPIRED | {OK} | {OK, waiting, meta} | {EXPIRED} | {LOST} | {FOREIGN, why}
-- Who waited when the hold ended: how many places the queue had, those let in included, and the meta
-- of the first, '' if it is not known.
-- The tombstone has ms, and 0 if no attempt is in flight. Who held before goes to the claims that this
-- release lets in, as it is. What the holder leaves is job and state, see lib/state; the rule is that
-- of lib/guard. From the tombstone on they may be left out at the end: 0, '', 0, '', none.
local id, margin, tombstone, before, job, state, rule = unpack(ARGV)
local key = KEYS[1]
-- uses: lib/short
local OK, LOST, FOREIGN, EXPIRED, QUARANTINE, UNFIT = 1, 3, 4, 5, 7, 8
-- uses: lib/guard
local refusal, closed
if guard then refusal, closed = guard() end
if refusal and refusal[1] ~= UNFIT then return refusal end
local stored = redis.pcall('GET', key)
local leaves = job and (job ~= '0' or state ~= '')
local none_in_flight = not tombstone or tombstone == '0'

-- The short way: one exclusive holder as ACQUIRE stored it, nobody waits, and no attempt is in
-- flight that needs a tombstone. The owner is compared in the script that frees, so a late release
-- never frees the next holder. The counter stays for the margin from now; a longer margin is for
-- the long way.
--
-- The end of the lease is not read: NoneInFlight says that its holder believes in it until now, and
-- belief ends first. If the clocks are wrong and it is over, still nobody has held since: the
-- counter would be another.
if type(stored) == 'string' and none_in_flight and not leaves and
  string.find(stored, ' ' .. margin .. ' ' .. id .. ' ', BARE + 1, true) == BARE + 1 and -- safeguard: release-owner
  -- Out of memory: the long way frees all the same.
  not redis.pcall('SET', key, string.sub(stored, 1, BARE), 'PX', margin).err then
  -- After the change: a waiter that is woken finds the key free. A user that may not publish has
  -- released all the same: waiters ask again by themselves.
  if string.sub(stored, -1) == ' ' then redis.pcall('PUBLISH', key .. ':free', 'free') end
  return OK
end
-- uses: lib/clock lib/group

-- The short way of a hand-over: an exclusive hold, no attempt in flight, and a plain exclusive
-- claim that is alive at the head of the queue. The id is compared, the hold ended and the next one
-- granted in one step, so the lock is never free in between and nobody overtakes. If the first
-- write is refused (out of memory), nothing was changed, and the long way frees all the same.
local function hand_over()
  local fields = redis.pcall('HMGET', key, 'v', 'o', 'x', 'f', 'g', 'z')
  -- safeguard: hand-over-owner
  if fields[1] ~= 'h2' or fields[2] ~= id or not fields[5] or fields[6] then return end
  local expires, counter, group = int(fields[3]), int(fields[4]), read_group(fields[5])
  if not (expires and counter and group) or group.holders > 0 then return end
  local place = 'q:' .. text(group.head)
  local ends, lease, client, tail, keep, who, count, meta =
    string.match(redis.call('HGET', key, place) or '', '^(%d+) (%d+) ([^ ]*) x ((%d+) ([^ ]+) (%d+) (.*))$')
  read_clock()
  if not ends or tonumber(ends) <= now then return end
  local token = math.max(counter + 1, us) -- safeguard: handed-above
  local last, waiting = token + count - 1, group.waiting
  -- A damaged reserve; or one that is to be cut; or a counter for which the key must live longer.
  if last < token or last >= token + 1024 or last > us + NEAR then return end
  local done
  if group.waiting == 1 then
    -- Marked, as a claim may watch that does not queue; see mark in ACQUIRE.
    local value = H2 .. text(last) .. ' ' .. tail .. ' ' -- safeguard: handed-marked
    done = redis.pcall('SET', key, value, 'PX', text(lease + keep + 1))
    if done.err then return end
  else
    local lasts = now + 1 + lease -- safeguard: whole-hand-over
    local outlasts = lasts > group.latest
    if outlasts then group.latest = lasts + 1000 end -- see outlast in lib/lock
    group.head, group.waiting = group.head + 1, group.waiting - 1
    done = redis.pcall('HSET', key, 'o', who, 'x', text(lasts), 'f', text(last), 'b', count, 'm', meta,
      'g', write_group(group))
    if type(done) ~= 'number' then return end
    redis.pcall('HDEL', key, place, 'w:' .. who)
    if outlasts and redis.call('PTTL', key) < group.latest - now + keep then
      redis.pcall('PEXPIRE', key, text(group.latest - now + keep))
    end
  end
  if client ~= '' then -- after the change; a message is a hint, or a grant that its token proves
    redis.pcall('PUBLISH', string.match(key, '^[^{]*') .. '@' .. client,
      text(token) .. ' ' .. count .. ' ' .. lease .. ' ' .. who .. ' ' .. key .. (before or ''))
  end
  return expires > now and {OK, waiting, meta} or EXPIRED -- safeguard: redis-waited
end
-- safeguard: guard-hand-over
local reply = type(stored) == 'table' and none_in_flight and not closed and not leaves and hand_over()
if reply then return reply end
-- uses: lib/run lib/tombstones lib/lock lib/state lib/holders lib/queue lib/forget

local function long()
  load('h:' .. id, 'w:' .. id)
  local code, gone = forget()
  if leaves and code == OK then leave_state(job, state) end -- safeguard: save-by-holder
  advance()
  local reply, waiting = {code}, admitted + lock.waiting
  if code == OK and waiting > 0 then
    local head = not first and not more and read_place(get('q:' .. lock.head))
    reply = {code, waiting, first and first.meta or head and head.meta or ''}
  end
  for _, message in ipairs(messages) do -- behind the key, which has no line end; a state may have any byte
    local grant, loaded = string.match(message[2], '^([^\n]*)(.*)$')
    message[2] = grant .. (before or '') .. loaded
  end
  if not none_in_flight then bar(tombstone) end
  if gone then rouse() end
  write_state()
  return commit(tonumber(margin), true, reply)
end
return answer(long)
