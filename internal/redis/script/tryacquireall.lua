-- TRYACQUIREALL(how many locks, then for each: px, tail, reserve; and at the end the guard's rule, if
--   there is one)
--   -> {OK, the tokens of the locks that were granted} | {QUARANTINE, ms, why} | {UNFIT, why}
--   | {FOREIGN, why}
-- Plain exclusive claims of several locks, granted in their order as by the short way of ACQUIRE, which
-- says why: what is stored is the same. The first lock that is not free ends it, or has more to it than
-- the short string of a free one. So nobody who waits is overtaken, and nothing behind it is touched.
local how_many = tonumber(ARGV[1])
local mark = KEYS[how_many + 1]
local locks, KEYS, rule = KEYS, {KEYS[1], mark}, mark and ARGV[#ARGV] -- what libraries see: one lock
-- uses: lib/short
local OK, FOREIGN, QUARANTINE, UNFIT = 1, 4, 7, 8
-- uses: lib/guard
local refusal, closed
if guard then refusal, closed = guard() end
if refusal or closed then return refusal or closed end -- safeguard: try-all-guard

local time, reply = redis.call('TIME'), {OK}
local clock = time[1] * 1000000 + time[2]
for i = 1, how_many do
  local px, tail, reserve = unpack(ARGV, 3 * i - 1, 3 * i + 1)
  local stored = redis.pcall('GET', locks[i])
  local counter = not stored and 0 or type(stored) == 'string' and tonumber(string.match(stored, IS_FREE))
  if not counter then break end -- safeguard: try-all-free
  local token = math.max(clock, counter + 1)
  local last = token + reserve - 1
  if last > clock + 10000 then break end -- see NEAR in lib/clock; safeguard: try-all-near
  local value = string.format(RECENT, last / 1000000, last % 1000000) .. ' ' .. tail
  local done = redis.pcall('SET', locks[i], value, 'PX', px)
  if done.err then return i == 1 and done or reply end -- what was granted before it is
  reply[i + 1] = token
end
return reply
