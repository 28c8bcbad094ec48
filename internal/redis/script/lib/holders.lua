-- Holders. An exclusive one is in lock.owner. Those who hold together are in the slots k:1 to
-- k:<lock.holders>, 'ends token owner id meta', without gaps (an empty owner is the id), and h:<id>
-- is the number of an id's slot. Behind the token of a permit that counts more than once is '*' and
-- its weight.
--
-- Capacity: whoever holds is counted. lock.holders grows only in admit, behind fits, and shrinks
-- only in drop, for a hold that is released or over by the only clock. So it is never below the
-- number of running leases, and fits never lets one too many in. A hold that is over may be counted
-- for a while, which is harmless. lock.weight changes in the same two places, by the weight that
-- the slot has from the one to the other; so it is never below the weight of the running leases.
local function read_slot(n)
  local ends, stored, owner, who, meta =
    string.match(get('k:' .. n) or '', '^(%d+) ([^ ]+) ([^ ]*) ([^ ]+) (.*)$')
  local token, weight = weighed(stored)
  ends = int(ends)
  if not ends or not token or not weight or weight < 1 then damaged('holders') end
  return {ends = ends, token = token, weight = weight, owner = owner, id = who, meta = meta}
end

local function write_slot(n, hold)
  local token = text(hold.token)
  if hold.weight > 1 then token = token .. '*' .. text(hold.weight) end
  changes['k:' .. n] = text(hold.ends) .. ' ' .. token .. ' ' .. hold.owner .. ' ' .. hold.id ..
    ' ' .. hold.meta
end

-- find_hold returns the slot and the hold of id, if it is among several.
local function find_hold()
  local n = lock.holders > 0 and get('h:' .. id)
  if not n then return end
  n = int(n)
  if not n or n < 1 or n > lock.holders then damaged('holders') end
  local hold = read_slot(n)
  if hold.id ~= id then damaged('holders') end
  return n, hold
end

-- drop takes hold out of slot n and moves the last one there. A purge under way loses nothing: if
-- the last one was seen, so it was, and else it is now in a slot that is still to be seen.
local function drop(n, hold)
  if n < lock.holders then
    local last = read_slot(lock.holders)
    write_slot(n, last)
    changes['h:' .. last.id] = text(n)
  end
  changes['k:' .. lock.holders], changes['h:' .. hold.id] = false, false
  lock.holders, lock.weight = lock.holders - 1, lock.weight - hold.weight
  if lock.weight < lock.holders or (lock.holders == 0 and lock.weight > 0) then
    damaged('holders')
  end
  lock.unseen = math.min(lock.unseen, lock.holders) -- safeguard: drop-unseen
  if lock.holders == 0 then lock.mode, lock.soonest, lock.unseen, lock.seen = '-', 0, 0, 0 end
end

-- purge drops holds that are over, looking at STEPS at a time, from the last slot down. It looks
-- only when one may be: soonest is lowered by every new lease, and raised at the end of a complete
-- look.
local function purge()
  if lock.holders == 0 or now < lock.soonest then return end
  if lock.unseen == 0 then lock.unseen, lock.seen = lock.holders, LAST end
  local first, fields = math.max(1, lock.unseen - STEPS + 1), {}
  for n = first, lock.unseen do fields[#fields + 1] = 'k:' .. n end
  fetch(fields)
  for n = lock.unseen, first, -1 do
    local hold = read_slot(n)
    -- safeguard: running-leases
    if hold.ends > now then lock.seen = math.min(lock.seen, hold.ends) else drop(n, hold) end
  end
  lock.unseen = math.min(first - 1, lock.holders)
  if lock.unseen > 0 then more = true elseif lock.holders > 0 then lock.soonest = lock.seen end
end

-- fits reports whether claim may hold beside those who hold: nobody, or readers for a reader,
-- permits whose weights add up to no more than their limit, holds of the same re-entrant owner
-- (whose last one a purge may yet drop).
local function fits(claim)
  if closed or (lock.owner and lock.expires > now) then return false end
  if lock.holders == 0 then return true end
  if claim.mode ~= lock.mode then return false end
  if claim.mode == 'p' then
    return lock.weight + claim.weight <= lock.limit and claim.limit == lock.limit
  end
  if claim.mode == 's' then return true end
  local hold = lock.unseen == 0 and read_slot(1)
  return hold and (hold.owner == '' and hold.id or hold.owner) == claim.owner
end

-- turn makes owner the exclusive holder, or nobody.
local function turn(owner, expires, meta, count)
  lock.owner, lock.expires, lock.turned = owner, expires, true
  lock.meta, lock.count, cache.m, cache.b = meta, count, meta, count
end

-- admit lets claim in for lease ms and returns its first token and how many it has. It is the only
-- place on the long way that grants, and its callers have asked fits. Each token is above counter,
-- the highest so far, and is stored in the step that grants; so tokens rise in the order of grants.
-- Another hold of a re-entrant owner is no new ownership, and has the token of the first.
--
-- If the owner's lease ran out, as else claim would not fit, lapsed is the last token it had.
local lapsed
local function admit(claim, lease)
  local ends, token, count = now + 1 + lease, nil, 1 -- safeguard: whole-lease
  if lock.owner and lock.owner ~= claim.id then lapsed = lock.counter end
  if lock.mode == 'r' then
    token = read_slot(1).token
  else
    local least = math.max(us, claim.min_token or 0)
    token = math.max(lock.counter + 1, least)
    -- A reserve that would end beyond NEAR is cut: however fast the key changes hands, its tokens
    -- do not run away from the clock. (A single one cannot: no µs sees two grants.)
    if claim.mode == 'x' then count = math.max(1, math.min(claim.reserve, least + NEAR - token)) end
    lock.counter = token + count - 1
    if lock.counter > LAST then stop({FOREIGN, 'a lock whose token counter is used up'}) end
  end
  outlast(ends)
  if claim.mode == 'x' then
    turn(claim.id, ends, claim.meta, text(count))
    lock.keep = claim.keep -- safeguard: handed-keep
    return token, count
  end
  if lock.owner then turn(false, 0, false, false) end -- its lease is over, else claim would not fit
  if lock.holders == 0 then
    lock.mode, lock.soonest = claim.mode, ends
    if claim.mode == 'p' then lock.limit = claim.limit end
  end
  lock.holders, lock.weight = lock.holders + 1, lock.weight + claim.weight
  lock.soonest = math.min(lock.soonest, ends)
  if lock.unseen > 0 then lock.seen = math.min(lock.seen, ends) end -- safeguard: admitted-unseen
  if get('k:' .. lock.holders) then damaged('holders') end -- more hold than were counted
  changes['h:' .. claim.id] = text(lock.holders)
  write_slot(lock.holders, {ends = ends, token = token, weight = claim.weight, id = claim.id,
    meta = claim.meta, owner = claim.owner == claim.id and '' or claim.owner})
  return token, 1
end

-- tokens returns the first token of the exclusive hold and how many it has: those up to counter.
local function tokens()
  local count = int(get('b') or '1')
  if not count or count < 1 or count > 1024 or count > lock.counter then damaged('tokens') end -- safeguard: most-reserved
  return lock.counter - count + 1, count
end

-- extend makes id's hold last for ttl from now at least and returns its tokens, if its lease is
-- running. One that is over is not revived, even if nobody took the key since: its owner may have
-- been told so. A lease only grows.
local function extend(ttl)
  local ends = now + 1 + ttl -- safeguard: whole-renewal
  if lock.owner == id and lock.expires > now then
    lock.expires = math.max(lock.expires, ends)
    outlast(lock.expires)
    return tokens()
  end
  local n, hold = find_hold()
  if not hold or hold.ends <= now then return end
  hold.ends = math.max(hold.ends, ends)
  outlast(hold.ends) -- safeguard: renewal-outlasts
  write_slot(n, hold)
  return hold.token, 1
end
