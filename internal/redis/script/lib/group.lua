-- The group: what the field g has, in this order, of those who hold together and of those who wait.
--   mode     of those who hold: s shared, p permits, r holds of one re-entrant owner, - nobody
--   limit    of permits
--   holders  how many hold, in the slots k:1 to k:<holders>, see lib/holders. Where a permit counts
--            more than once it is 'holders*weight', with the sum of their weights, which a client
--            that knows no weights takes for damage.
--   soonest  not later than the earliest end of their leases
--   unseen   slots up to this one are still to be seen by a purge under way, which has found that ...
--   seen     ... the earliest end among the others is this
--   latest   not earlier than the latest end of a lease or of a place; only the key's expiry needs it
--   head, tail, waiting, permits   of the queue, see lib/queue

-- read_group returns nil for a damaged one. Without the field nobody holds or waits. Its caller
-- leaves weight out.
local function read_group(stored, weight)
  if not stored then
    return {mode = '-', limit = 0, holders = 0, soonest = 0, unseen = 0, seen = 0, latest = 0,
      head = 1, tail = 0, waiting = 0, permits = 0, weight = 0}
  end
  local mode, limit, holders, soonest, unseen, seen, latest, head, tail, waiting, permits =
    string.match(stored, '^([-spr]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not mode then
    local first, sum, rest = string.match(stored, '^(p %d+ %d+)%*(%d+)( .*)$')
    return first and read_group(first .. rest, tonumber(sum))
  end
  local group = {mode = mode, limit = limit + 0, holders = holders + 0, soonest = soonest + 0,
    unseen = unseen + 0, seen = seen + 0, latest = latest + 0,
    head = head + 0, tail = tail + 0, waiting = waiting + 0, permits = permits + 0,
    weight = weight or holders + 0}
  if (group.holders == 0) == (mode == '-') and group.holders + group.waiting > 0 and
    group.unseen <= group.holders and group.head > 0 and group.tail <= 1e13 and
    group.waiting <= group.tail - group.head + 1 and group.permits <= group.waiting and
    (group.limit > 0 or (mode ~= 'p' and group.permits == 0)) and
    (not weight or (weight > group.holders and weight <= group.limit)) and
    math.max(group.limit, group.soonest, group.seen, group.latest) <= LAST then
    return group
  end
end

local function write_group(group)
  local format = DIGITS == '%d' and '%s %d %d %d %d %d %d %d %d %d %d' or
    '%s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f'
  local stored = group.holders + group.waiting > 0 and string.format(format, group.mode,
    group.limit, group.holders, group.soonest, group.unseen, group.seen, group.latest, group.head,
    group.tail, group.waiting, group.permits)
  if group.weight > group.holders then
    stored = string.gsub(stored, '^(p %d+ %d+)', '%1*' .. text(group.weight))
  end
  return stored
end

-- moving returns an error while the slot of the lock is being moved to another server. A script is
-- refused every key then that is not there, so a string that was deleted could not become a HASH, and
-- the lock would be gone. It is asked before the first write. No key has the name that is tried.
local function moving()
  local reply = redis.pcall('GET', key .. ':none')
  if type(reply) == 'table' and string.find(reply.err, 'non local key', 1, true) then -- safeguard: moving-slot
    return {err = 'TRYAGAIN the slot of the lock is being moved'}
  end
end
