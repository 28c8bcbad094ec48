-- Holders. An exclusive one is in o, x, m (and b, how many tokens it has: those up to f). Those who hold
-- together are in slots k:1 to k:gn, 'ends token owner id meta', without gaps, and h:<id> is the number of an id's slot:
-- one to find an acquisition, the other to find them all, both in one step. (An empty owner is the id.)
--
-- Capacity: whoever holds is counted. gn grows only in admit, behind fits, and shrinks only in drop, which is for a hold that
-- is released or whose lease has run out by the only clock. So gn is never below the number of running leases, and fits,
-- which compares gn, never lets one too many in. A lease that has run out may be counted for a while, which is harmless.
local function slot(n)
  local s = get('k:' .. n)
  if not s then return damaged('holders') end
  local ends, token, owner, who, meta = string.match(s, '^(%d+) (%d+) ([^ ]*) ([^ ]+) (.*)$')
  ends, token = int(ends), int(token)
  if not ends or not token then return damaged('holders') end
  return {ends = ends, token = token, owner = owner, id = who, meta = meta, text = s}
end

local function fill(n, e)
  put('k:' .. n, text(e.ends) .. ' ' .. text(e.token) .. ' ' .. e.owner .. ' ' .. e.id .. ' ' .. e.meta)
end

-- own returns the slot and the hold of id, if it is among several.
local function own()
  local s = get('h:' .. id)
  if not s then return end
  local n = int(s)
  if not n or n < 1 or n > gn then return damaged('holders') end
  local e = slot(n)
  if e and e.id == id then return n, e end
  return damaged('holders')
end

-- drop takes e out of slot n, and moves the last one there. For a look under way that is no loss: if the last one was looked
-- at, so it was, and if it was not, it is now at a slot that is still to come or, at worst, looked at twice.
local function drop(n, e)
  if n < gn then
    local mover = slot(gn)
    if not mover then return end
    put('k:' .. n, mover.text)
    put('h:' .. mover.id, text(n))
  end
  put('k:' .. gn, false)
  put('h:' .. e.id, false)
  gn = gn - 1
  gc = math.min(gc, gn)
  if gn == 0 then gm, gx, gc, ga = '-', 0, 0, 0 end
end

-- purge drops those whose lease has run out, STEPS at a time, from the last slot down. It looks only when one may have: gx is
-- lowered by every new lease and raised only at the end of a complete look, so it is never late.
local function purge()
  if gn == 0 or now < gx then return end
  if gc == 0 then gc, ga = gn, LAST end
  local first, fields = math.max(1, gc - STEPS + 1), {}
  for n = first, gc do fields[#fields + 1] = 'k:' .. n end
  fetch(fields)
  local n = gc
  while n >= first do
    local e = slot(n)
    if not e then return end
    if e.ends > now then ga = math.min(ga, e.ends) else drop(n, e) end
    n = n - 1
  end
  gc = math.min(first - 1, gn)
  if gc > 0 then more = true elseif gn > 0 then gx = ga end
end

-- soonest returns when the first lease of those who hold ends, and their Meta. gx may be long past, as renewals do not move
-- it, so they are looked at while they are not many.
local function soonest()
  if gn > STEPS then return gx, '' end
  local fields, ends, meta = {}, LAST, ''
  for n = 1, gn do fields[n] = 'k:' .. n end
  fetch(fields)
  for n = 1, gn do
    local e = slot(n)
    if not e then break end
    if e.ends < ends then ends, meta = e.ends, e.meta end
  end
  return ends, meta
end

-- fits reports whether c may hold beside those who hold: nobody, or readers for a reader, permits below their limit, holds
-- of the same re-entrant owner. A look under way may yet drop that owner's last hold, so then it does not count.
local function fits(c)
  if closed then return false end
  if o and x > now then return false end
  if gn == 0 then return true end
  if c.mode ~= gm then return false end
  if gm == 'p' then return gn < gl and c.limit == gl end
  if gm == 's' then return true end
  local e = gc == 0 and gm == 'r' and slot(1)
  return e and e.owner == c.owner or false
end

-- vacate takes the exclusive hold away: its owner released it, or its lease has run out.
local function vacate()
  o, x, m, b = false, 0, false, false
  for _, field in ipairs({'o', 'x', 'm', 'b'}) do put(field, false) end
end

-- admit lets c in for a lease, and returns its token. It is the only place that writes a new hold, and its callers have asked
-- fits. Tokens rise in the order of grants: f is the highest one given so far, and each grant goes above it, in the script
-- that stores it. Another hold of a re-entrant owner is no new ownership, and has the token of the first.
--
-- An exclusive hold may reserve more tokens, and is told how many it has got: those that end within 10 ms of the clock, or of a
-- wish, which is bounded by the clock itself. So however fast the key changes hands, its tokens do not run away from the clock,
-- which alone keeps them rising when the server has lost its memory. A single one per grant cannot: no µs sees two grants.
local function admit(c, lease)
  local ends, token, count = now + 1 + lease, nil, 1
  if gm == 'r' then
    local e = slot(1)
    if not e then return 0, 1 end
    token = e.token
  else
    token = math.max(f + 1, us, c.floor or 0)
    if c.mode == 'x' then count = math.max(1, math.min(c.reserve, math.max(us, c.floor or 0) + 10000 - token)) end
    f = token + count - 1
    if f > LAST then broken = broken or 'a lock whose token counter is used up' end
    put('f', text(f))
  end
  mx = math.max(mx, ends)
  if c.mode == 'x' then
    o, x, m = c.id, ends, c.meta
    put('o', o)
    put('x', text(x))
    put('m', m)
    b = text(count)
    put('b', b)
    return token, count
  end
  if o then -- its lease has run out, else c would not fit
    vacate()
  end
  if gn == 0 then
    gm, gx = c.mode, ends
    if gm == 'p' then gl = c.limit end
  end
  gn, gx = gn + 1, math.min(gx, ends)
  if gc > 0 then ga = math.min(ga, ends) end
  if get('k:' .. gn) then damaged('holders') end -- more hold than were counted
  put('h:' .. c.id, text(gn))
  fill(gn, {ends = ends, token = token, owner = c.owner == c.id and '' or c.owner, id = c.id, meta = c.meta})
  return token, 1
end

-- first returns an exclusive hold's first token and how many it has. They are the highest given.
local function first()
  if not b then return f, 1 end
  local count = int(b)
  if not count or count < 1 or count > 1024 or count > f then return damaged('tokens') end
  return f - count + 1, count
end

-- extend makes id's hold last for ttl from now at least, if its lease is running, and returns its tokens. A hold that ended
-- is not revived, even if nobody took the key since: the owner may have been told that it lost it. A lease only grows.
local function extend(ttl)
  local ends = now + 1 + ttl
  if o == id and x > now then
    x = math.max(x, ends)
    put('x', text(x))
    return first()
  end
  local n, e = own()
  if not e or e.ends <= now then return end
  e.ends = math.max(e.ends, ends)
  mx = math.max(mx, e.ends)
  fill(n, e)
  return e.token, 1
end

-- raise makes the token of id's hold, which extend has found, floor at least, and with it those of the same re-entrant owner.
-- What is granted later is above it, and above what the hold has reserved.
local function raise(floor)
  if floor > 4503599627370496 then return damaged('floor') end
  if o == id then
    local token, count = first()
    if token and floor > token then
      f = floor + count - 1
      put('f', text(f))
    end
    return
  end
  local mine = own()
  if floor > f then
    f = floor
    put('f', text(f))
  end
  for n = gm == 'r' and 1 or mine, gm == 'r' and gn or mine do
    local e = slot(n)
    if not e then return end -- damaged, and gn may be anything
    if e.token < floor then
      e.token = floor
      fill(n, e)
    end
  end
end
