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
