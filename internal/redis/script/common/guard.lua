-- The guard: a server that may have forgotten holds lets nobody in until the last of them has run out, on whichever way this
-- script goes. KEYS[2] is the server's mark, 'h2 <replication id> <since> <longest TTL>/<grace> <why>'. The replication id is another
-- one after every start and every promotion, also of a process that lives on (a primary that became a replica and then the
-- primary again, without what it had not replicated), and FLUSHALL takes the mark. So if the mark has this id, then whatever
-- was granted before since is either in this memory, or was granted by a life before: and those leases, none longer than
-- the longest TTL, are over after the grace. The mark is read in the step that grants, so nothing comes in between.
--
-- The last argument is 'longest TTL, grace'. Only grants are refused: what is held is renewed and released. A client with
-- another longest TTL or grace than the mark's is unfit, also on a server that has forgotten, and gets no lease at all, new or longer (common/fit.lua). It may give back
-- what it has, but its grace says nothing of this server, so its release lets nobody in: who waits asks by himself.
local QUARANTINE, UNFIT = 7, 8
local closed, unfit = false, false
do
  local longest, grace = string.match(ARGV[#ARGV], '^(%d+) (%d+)$')
  local mark, info = redis.pcall('GET', KEYS[2]), redis.pcall('INFO', 'replication')
  if type(info) == 'table' then return info end
  if type(mark) == 'table' then return mark end
  local life = string.match(info, 'master_replid:(%x+)')
  if not life then return {UNFIT, 'it has no replication id'} end
  local t = redis.call('TIME')
  local now = math.floor((t[1] * 1000000 + t[2]) / 1000)
  local known, since, rule, why = string.match(mark or '', '^h2 (%x+) (%d+) (%d+/%d+) (.*)$')
  local ours = longest .. '/' .. grace
  if mark and not known then return {FOREIGN, 'the mark of the server is damaged'} end
  if not mark then
    since, why = now, 'new or flushed'
  elseif rule ~= ours then
    -- A longer TTL than was promised could outlive the grace; a shorter grace could be too short for the others' leases. This comes
    -- first: whoever found the server changed and wrote his own rule would cut the others' grace short.
    unfit = {UNFIT, 'its clients have another max_ttl or replica_lag: max_ttl/grace is ' .. rule .. ' ms there, ' .. ours .. ' ms here'}
  elseif known ~= life then
    since, why = now, 'restarted or promoted'
  elseif tonumber(since) > now then
    since, why = now, 'set back in time'
  end
  if since == now and redis.pcall('SET', KEYS[2], string.format('h2 %s %.0f %s %s', life, now, ours, why)).err then
    closed = {tonumber(grace), why} -- no memory, or a replica: closed until the mark is written
  end
  local rest = since + grace - now
  if rest > 0 then closed = {rest, why} end
  if unfit then closed = {1, 'of another rule'} end
end
