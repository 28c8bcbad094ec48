-- RELEASE(id, keep, tombstone ms or 0, which may be left out) -> OK | EXPIRED | {OK} | {EXPIRED} | {LOST} | {FOREIGN, why}
local keep, tomb = tonumber(ARGV[2]), settled and 0 or tonumber(ARGV[3])
fetch({'h:' .. id, 'w:' .. id})

-- The id is compared in the script that deletes, so a late release never frees the next holder. It holds, or stands in line,
-- or neither; a grant that was handed over and not heard of yet is a hold like any other.
local result, gone = LOST, false
if o == id then
  result, gone = x > now and OK or EXPIRED, true
  vacate()
else
  local n, e = own()
  if e then
    result, gone = e.ends > now and OK or EXPIRED, true
    drop(n, e)
  end
end
local seq, at = mine()
if seq then
  gone = true
  strike(seq, at)
end
adv()
if tomb > 0 then bury(tomb) end

-- Those who do not stand in line are woken if one of them could be let in.
local room = qn == 0 and not (o and x > now) and (gn == 0 or gm == 's' or (gm == 'p' and gn < gl))
return commit(keep, true, {result}, gone and room and K .. ':free')
