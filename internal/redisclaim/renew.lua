-- RENEW(id, ttl, keep) -> {OK} | {LOST} | {FOREIGN, why}
local keep = tonumber(ARGV[3])
fetch({'h:' .. id})
local reply = {extend(tonumber(ARGV[2])) and OK or LOST}
adv() -- another's lease may have run out
return commit(keep, true, reply)
