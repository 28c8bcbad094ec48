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
-- The short string of a lock, see doc.go: a free one is 'h2 counter', a held one 'h2 counter margin
-- id count meta'. Scripts read and write it by what is here and no other way, and clients by
-- short.go. (These are no functions: making one costs the server a hundredth of a pair.)
local IS_FREE = '^h2 (%d+)$' -- matches that of a free lock: its counter
local IS_HELD = '^h2 (%d+) (%d+) ([^ ]+) (%d+) (.*)$' -- counter, margin, id, count, meta
local HELD_BY = '^h2 %d+ (%d+) ([^ ]+) ' -- of a held one, margin and id alone, which costs less
local H2 = 'h2 ' -- what it begins with; the counter is next
-- The same for a counter that is near the clock, in millions and the rest. (%d has 32 bits on some
-- servers, and %.0f costs twice as much.) It has 16 digits until the year 2286, and with it the
-- string has BARE bytes: all of that of a free lock.
local RECENT, BARE = 'h2 %d%06d', 19
local OK, FOREIGN, QUARANTINE, UNFIT = 1, 4, 7, 8
-- uses: lib/guard
-- The guard: a server that may have forgotten holds lets nobody in until the last of them is over.
-- KEYS[2] is the mark of the server, 'h2 <replication id> <since> <longest TTL>/<grace> <why>', and
-- the argument rule is 'longest grace'; without it there is no guard. The replication id
-- changes with every start and every promotion (also of a primary that was a replica meanwhile, and
-- lost what it had not replicated), and FLUSHALL takes the mark. So if the mark has this id,
-- whatever was granted since is in this memory, and what was granted before is over after the
-- grace, as no lease is longer than the longest TTL. The mark is read in the step that grants.
-- guard returns two things, both false if all is well:
--   refusal  an error, or {UNFIT, why} for a client with another rule than this server's others: it
--            gets no lease, new or longer. It may release what it has.
--   closed   {QUARANTINE, ms, why}: nobody is let in, also not by a release. Renewals go on.
local guard = rule and function()
  local longest, grace = string.match(rule, '^(%d+) (%d+)$')
  local ours = longest .. '/' .. grace
  local mark, info = redis.pcall('GET', KEYS[2]), redis.pcall('INFO', 'replication')
  if type(info) == 'table' and info.err then return info end
  if type(mark) == 'table' then return mark end
  local time = redis.call('TIME')
  local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
  local unfit = {QUARANTINE, 1, 'of another rule'}
  local life = string.match(info, 'master_replid:(%x+)')
  if not life then return {UNFIT, 'it has no replication id'}, unfit end
  local known, since, others, why = string.match(mark or '', '^h2 (%x+) (%d+) (%d+/%d+) (.*)$')
  if mark and not known then
    return {FOREIGN, 'the mark of the server is damaged'}
  elseif not mark then
    since, why = now, 'new or flushed'
  elseif others ~= ours then
    -- First of all: a client that found a changed server and wrote its own rule would cut the
    -- others' grace.
    return {UNFIT, 'its clients have another max_ttl or replica_lag: max_ttl/grace is ' .. others ..
      ' ms there, ' .. ours .. ' ms here'}, unfit
  elseif known ~= life then -- safeguard: guard
    since, why = now, 'restarted or promoted'
  elseif tonumber(since) > now then
    since, why = now, 'set back in time'
  end
  -- Without memory, or at a replica, the mark is not written: closed for the grace, from whenever
  -- it is.
  if since == now then
    redis.pcall('SET', KEYS[2], string.format('h2 %s %.0f %s %s', life, now, ours, why))
  end
  local rest = since + grace - now
  return false, rest > 0 and {QUARANTINE, rest, why}
end
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
