-- ACQUIRE, as in acquire.lua: plain exclusive claims only.
if buried() then return {LOST} end
local keep, reserve, says = string.match(ARGV[3], '^(%d+) [^ ]+ (%d+) (.*)$')
keep, reserve = tonumber(keep), tonumber(reserve)
local lease = ARGV[2] - keep
if o == id then -- a repeat: the same hold, so the same tokens; a lease only grows, and is written again, which a replica refuses
  lease = math.max(lease, redis.call('PTTL', K))
  local r = redis.pcall('PEXPIRE', K, text(lease))
  if type(r) == 'table' and r.err then return r end
  keepside(lease, keep)
  return {OK, f - count + 1, count}
end
if o then return {HELD, math.max(0, redis.call('PTTL', K)), o == ours and meta or '', 0, f} end -- 0 is "unknown": a lock without an end
local wish = math.min(tonumber(ARGV[7]), us + ARGV[8])
local token = math.max(f + 1, us, wish)
reserve = math.max(1, math.min(reserve, math.max(us, wish) + 10000 - token)) -- as in common/holders.lua
f = token + reserve - 1
if f > LAST then return {FOREIGN, 'a lock whose token counter is used up'} end
count, ours, meta = reserve, id, says
-- The counter first: a token that was stored and not granted is a gap, one that was granted and not stored comes twice.
local r = keepside(lease, keep)
if r.err then return r end
r = redis.pcall('SET', K, id, 'PX', text(lease))
if r.err then return r end
return {OK, f - count + 1, count}
