-- HEARTBEAT('', keep, client, then for each claim: id, waiter TTL, lease) -> {OK, '1' or '0' for each claim} | {FOREIGN, why}
-- A place that is still in the queue ('1') lasts for its waiter TTL from now at least. A claim that is not there ('0') was let in,
-- has lapsed or was released: its next ACQUIRE tells which. Whoever is next is let in first, if something has run out.
local keep, client, total = tonumber(ARGV[2]), ARGV[3], (#ARGV - #ARGV % 3 - 3) / 3
local fields = {}
for i = 1, total do fields[i] = 'w:' .. ARGV[3 * i + 1] end
fetch(fields)
fields = {qn > 0 and 'q:' .. qh or nil}
for i = 1, total do
  local seq = was['w:' .. ARGV[3 * i + 1]]
  if seq then fields[#fields + 1] = 'q:' .. seq end
end
fetch(fields)
adv()
local waiting = {}
for i = 1, total do
  id = ARGV[3 * i + 1]
  local seq, at = mine()
  waiting[i] = '0'
  if seq and at.ends > now then
    at.ends = math.max(at.ends, now + 1 + ARGV[3 * i + 2])
    at.lease, at.client = tonumber(ARGV[3 * i + 3]), client
    stand(seq, at)
    waiting[i] = '1'
  end
end
return commit(keep, true, {OK, table.concat(waiting)})
