-- ACQUIRE(id, px, tail, line, reserve, form, floor or 0, µs that a floor may be ahead) -> token | {OK, token, reserved} | {HELD, ms or 0, meta, position or 0, last token}
--   | {LOST} | {MISMATCH, limit in use} | {FOREIGN, why}
-- The tail is 'keep id reserve meta' and px is ttl + keep + 1, so that the short way puts them into the key as they are. The
-- form is 'x', or 'mode,limit,owner'; the line is empty, or 'linger lease client', where the lease is of a grant that is
-- handed over. Form, floor and what belongs to it are left out by whoever wants 'x' and no floor.
local c = claim(ARGV[3], ARGV[6] or 'x')
local keep = c.keep
local ttl = ARGV[2] - keep - 1
c.floor = ARGV[8] and math.min(tonumber(ARGV[7]), us + ARGV[8]) or 0
c.linger = 0
if ARGV[4] ~= '' then
  local linger, lease, client = string.match(ARGV[4], '^(%d+) (%d+) ([^ ]*)$')
  c.linger, c.lease, c.client = tonumber(linger), tonumber(lease), client
end

-- A release of this id was here first, so this attempt is late: nobody believes in it any more, and it must not hold.
if buried() then return {LOST} end

fetch({'h:' .. id, 'w:' .. id})
asker = id
adv()

-- The reply to an earlier attempt was lost, or it was sent twice, or the key was handed over to this claim and it says that
-- it lives. Still the same hold, so the same token.
local token, reserved = extend(ttl)
if token then return commit(keep, true, {OK, token, reserved}) end

local n, e = own()
if e then drop(n, e) end -- its lease has run out, and purge has not come to it yet
local seq, at = mine()
if seq and at.ends <= now then -- it lapsed in the middle of the line; purging only looks at the head
  strike(seq, at)
  seq = nil
end

if c.mode == 'p' and (gm == 'p' or qp > 0) and gl ~= c.limit and not seq then
  -- Unless those who are not looked at yet may all be gone: then it is to ask again, but not to stand in a line of another limit.
  return commit(keep, true, more and {HELD, 1, '', 0, f} or {MISMATCH, gl})
end

-- Nobody overtakes: adv has let in whom it could, so who still stands in line is before this claim. The exception is another
-- hold of a re-entrant owner that holds: it does not take the key from anybody, and might wait for itself for ever.
if fits(c) and (qn == 0 or gm == 'r') then
  if seq then strike(seq, at) end
  token, reserved = admit(c, ttl)
  return commit(keep, false, {OK, token, reserved})
end

local keeps = seq ~= nil
if c.linger > 0 then
  if keeps then
    at.ends, at.lease, at.client = math.max(at.ends, now + 1 + c.linger), c.lease, c.client
  else
    at, qt, qn = c, qt + 1, qn + 1
    seq, at.ends = qt, now + 1 + c.linger
    if c.mode == 'p' then qp, gl = qp + 1, c.limit end
    put('w:' .. id, text(seq))
  end
  stand(seq, at)
end

-- Who should ask, and when: the head for the line, and whoever does not stand in it for himself.
local position, ms, meta = seq and rank(seq) or 0, 0, m
if gn > 0 then
  local e = slot(1)
  meta = e and e.meta
end
if more then
  ms = 1
elseif position <= 1 then
  local ends = LAST
  if o and x > now then ends = x elseif gn > 0 and not fits(c) then ends, meta = soonest() end
  local head = not seq and qn > 0 and place(qh)
  if head then ends = math.min(ends, head.ends) end
  ms = math.max(1, ends - now)
end
return commit(keep, keeps or c.linger == 0, {HELD, ms, meta or '', position, f})
