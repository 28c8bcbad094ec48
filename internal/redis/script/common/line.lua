-- A claim is the tail and the form that Layout.Acquire made: 'keep id reserve meta', and 'x' or 'mode,limit,owner'.
local function claim(tail, form)
  local keep, who, reserve, meta = string.match(tail, '^(%d+) ([^ ]+) (%d+) (.*)$')
  local mode, limit, owner = string.match(form, '^([xspr]),(%d+),(.*)$')
  if form == 'x' then mode, limit, owner = 'x', '0', '' end
  keep, limit, reserve = int(keep), int(limit), int(reserve)
  if not (keep and limit and reserve) or reserve < 1 or reserve > 1024 or (mode == 'p') ~= (limit > 0) then return end
  if owner == '' then owner = who end
  return {
    id = who, owner = owner, mode = mode, limit = limit, reserve = reserve, meta = meta, keep = keep, tail = tail, form = form,
  }
end

-- The line: q:<number> is 'ends lease client form tail', w:<id> the number of an id's place. An id is looked up by w before it
-- is given a place, so a repeat or a doubled attempt never has two.
local function place(seq)
  local s = get('q:' .. seq)
  if not s then return end -- somebody left
  local ends, lease, client, form, tail = string.match(s, '^(%d+) (%d+) ([^ ]*) ([^ ]+) (.*)$')
  local e = tail and claim(tail, form)
  ends, lease = int(ends), int(lease)
  if not (e and ends and lease) then return damaged('line') end
  e.ends, e.lease, e.client = ends, lease, client
  return e
end

local function stand(seq, e)
  put('q:' .. seq, text(e.ends) .. ' ' .. text(e.lease) .. ' ' .. e.client .. ' ' .. e.form .. ' ' .. e.tail)
  mx = math.max(mx, e.ends)
end

-- strike takes e's place out of the line.
local function strike(seq, e)
  put('q:' .. seq, false)
  put('w:' .. e.id, false)
  qn = qn - 1
  if e.mode == 'p' then qp = qp - 1 end
  if qn < 0 or qp < 0 then return damaged('line') end
  if seq == qh then qh = qh + 1 end
  if qn == 0 then qh, qt = 1, 0 end
end

-- mine returns the number and the place of id.
local function mine()
  local s = get('w:' .. id)
  if not s then return end
  local seq = int(s)
  if not seq or seq < qh or seq > qt then return damaged('line') end
  local e = place(seq)
  if e and e.id == id then return seq, e end
  return damaged('line')
end

-- adv ends what has run out, and then lets the head of the line in as long as it fits: readers together, a writer alone.
-- It stops at the first that does not fit, so nobody is overtaken. Afterwards, unless more is set, nobody stands in line or
-- the head is alive and does not fit: a claim that finds somebody in line has to wait, whoever it is.
--
-- Whoever is let in holds from now on, in the step that made the room, for its linger. If it lives, it asks within that time
-- and its lease becomes a whole one; if it is dead, its lease ends like any other and the next is let in: a linger is lost
-- and no more. (A linger above the claim's TTL is cut to it: no crash costs more than the TTL.) Leaving the line and being let in are both steps of a script, so a waiter that is cancelled has left before, or
-- holds: its release ends either.
--
-- The message may be believed if its token is above the f of the claim's last answer: then this ran after that did.
local wakes = {}
local function adv()
  purge()
  local steps, known = 0, qh
  while qn > 0 and not broken do
    if steps == STEPS then
      more = true
      return
    end
    if qh > known then -- the head was not the last one: look at the next ones together, more of them each time
      local fields = {}
      for seq = qh, math.min(qt, qh + steps) do fields[#fields + 1] = 'q:' .. seq end
      fetch(fields)
      known = qh + steps
    end
    steps = steps + 1
    local e = place(qh)
    if not e then
      qh = qh + 1
      if qh > qt then return damaged('line') end
    elseif e.ends <= now then
      strike(qh, e)
    elseif fits(e) then
      strike(qh, e)
      local token
      token, e.reserve = admit(e, e.lease)
      if e.id ~= asker and e.client ~= '' then wakes[#wakes + 1] = {e, token} end
    else
      return
    end
  end
end

-- rank is the position of the place at seq. With gaps and far behind it may be too high, never too low.
local function rank(seq)
  local before = seq - qh
  if qt - qh + 1 == qn then return before + 1 end
  if before > STEPS then return math.min(before + 1, qn) end
  local fields, n = {}, 1
  for i = qh, seq - 1 do
    if was['q:' .. i] == nil then fields[#fields + 1] = 'q:' .. i end
  end
  fetch(fields)
  for i = qh, seq - 1 do
    if get('q:' .. i) then n = n + 1 end
  end
  return n
end
