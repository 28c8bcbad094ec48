-- RENEW(id, ttl, keep, floor or 0) -> OK | {OK} | {LOST} | {FOREIGN, why}
local keep = tonumber(ARGV[3])
fetch({'h:' .. id})
local reply = {extend(tonumber(ARGV[2])) and OK or LOST}
if reply[1] == OK and ARGV[4] ~= '0' then raise(tonumber(ARGV[4])) end
adv() -- another's lease may have run out
return commit(keep, true, reply)
