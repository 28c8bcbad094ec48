-- HEARTBEAT(how many locks, client, then for each lock: keep, how many claims, and for each claim:
--   id, ttl of its place, lease; and at the end the guard's rule, if there is one)
--   -> {OK, for each lock: positions, last token, ms or 0, meta} | {UNFIT, why} | {FOREIGN, why}
-- A place that is still in its queue has a position, and lasts for its ttl from now at least. A
-- claim without one (position 0) was let in, or its place has lapsed or was left: its next ACQUIRE
-- tells which. So it does for one whose owner holds by another claim: it is kept, and has none, as
-- it enters past the queue. The next waiter is let in first, if something is over. ms is for the
-- lowest position. Of several locks only those are looked after that take the short way, so that the
-- script is short: without positions nothing was done about a lock, and it is to be asked about
-- alone.
local OK, LOST, FOREIGN, QUARANTINE, UNFIT = 1, 3, 4, 7, 8
local how_many, client = unpack(ARGV)
local mark = KEYS[how_many + 1]
local locks, KEYS, rule = KEYS, {KEYS[1], mark}, mark and ARGV[#ARGV] -- what libraries see: one lock
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
local key, id, several = KEYS[1], '', how_many ~= '1'
local refusal, closed
if guard then refusal, closed = guard() end
if refusal then return refusal end
-- uses: lib/clock lib/group
-- The store's clock is the only clock: no client sends a time of day, only durations. It is read
-- once, because before Redis 7.2 it goes on within a script.
local us, now -- in µs and in whole ms
local function read_clock()
  local time = redis.call('TIME')
  us = time[1] * 1000000 + time[2]
  now = math.floor(us / 1000)
end

-- Numbers are stored as plain digits: tostring would write 1.7952e+15, and tonumber reads 'nan',
-- which no lease outlives. (%d is twice as quick, but has 32 bits on some servers.)
local DIGITS = string.format('%d', 4294967296) == '4294967296' and '%d' or '%.0f'
local LAST = 9007199254740990 -- the largest token: above 2^53, n + 1 may be n
local function text(n) return string.format(DIGITS, n) end
local function int(digits)
  local n = digits and #digits <= 16 and string.find(digits, '^%d+$') and tonumber(digits)
  return n and n <= LAST and n
end

-- Tokens end within NEAR µs of the clock, or of a minimum token, where that is possible: so they
-- rise also where all was lost but the clock. A counter further ahead is kept until the clock has
-- caught up.
local NEAR = 10000
local function ahead(counter) return math.max(0, 2 * math.ceil((counter - us) / 1000)) end
-- The group: what the field g has, in this order, of those who hold together and of those who wait.
--   mode     of those who hold: s shared, p permits, r holds of one re-entrant owner, - nobody
--   limit    of permits
--   holders  how many hold, in the slots k:1 to k:<holders>, see lib/holders. Where a permit counts
--            more than once it is 'holders*weight', with the sum of their weights, which a client
--            that knows no weights takes for damage.
--   soonest  not later than the earliest end of their leases
--   unseen   slots up to this one are still to be seen by a purge under way, which has found that ...
--   seen     ... the earliest end among the others is this
--   latest   not earlier than the latest end of a lease or of a place; only the key's expiry needs it
--   head, tail, waiting, permits   of the queue, see lib/queue

-- read_group returns nil for a damaged one. Without the field nobody holds or waits. Its caller
-- leaves weight out.
local function read_group(stored, weight)
  if not stored then
    return {mode = '-', limit = 0, holders = 0, soonest = 0, unseen = 0, seen = 0, latest = 0,
      head = 1, tail = 0, waiting = 0, permits = 0, weight = 0}
  end
  local mode, limit, holders, soonest, unseen, seen, latest, head, tail, waiting, permits =
    string.match(stored, '^([-spr]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not mode then
    local first, sum, rest = string.match(stored, '^(p %d+ %d+)%*(%d+)( .*)$')
    return first and read_group(first .. rest, tonumber(sum))
  end
  local group = {mode = mode, limit = limit + 0, holders = holders + 0, soonest = soonest + 0,
    unseen = unseen + 0, seen = seen + 0, latest = latest + 0,
    head = head + 0, tail = tail + 0, waiting = waiting + 0, permits = permits + 0,
    weight = weight or holders + 0}
  if (group.holders == 0) == (mode == '-') and group.holders + group.waiting > 0 and
    group.unseen <= group.holders and group.head > 0 and group.tail <= 1e13 and
    group.waiting <= group.tail - group.head + 1 and group.permits <= group.waiting and
    (group.limit > 0 or (mode ~= 'p' and group.permits == 0)) and
    (not weight or (weight > group.holders and weight <= group.limit)) and
    math.max(group.limit, group.soonest, group.seen, group.latest) <= LAST then
    return group
  end
end

local function write_group(group)
  local format = DIGITS == '%d' and '%s %d %d %d %d %d %d %d %d %d %d' or
    '%s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f'
  local stored = group.holders + group.waiting > 0 and string.format(format, group.mode,
    group.limit, group.holders, group.soonest, group.unseen, group.seen, group.latest, group.head,
    group.tail, group.waiting, group.permits)
  if group.weight > group.holders then
    stored = string.gsub(stored, '^(p %d+ %d+)', '%1*' .. text(group.weight))
  end
  return stored
end

-- moving returns an error while the slot of the lock is being moved to another server. A script is
-- refused every key then that is not there, so a string that was deleted could not become a HASH, and
-- the lock would be gone. It is asked before the first write. No key has the name that is tried.
local function moving()
  local reply = redis.pcall('GET', key .. ':none')
  if type(reply) == 'table' and string.find(reply.err, 'non local key', 1, true) then -- safeguard: moving-slot
    return {err = 'TRYAGAIN the slot of the lock is being moved'}
  end
end
read_clock()

-- position is that of place number; with gaps in the queue it may be too high.
local function position(number, group)
  return text(math.min(number - group.head + 1, group.waiting))
end

-- The short way: somebody holds and the head of the queue is alive, so nobody is to be let in. (A
-- head that could hold beside those who hold was let in by the script that made room, but for a
-- guard's, and for those beyond the first STEPS, whom the next script of another verb lets in.) Nor
-- does a re-entrant owner hold, who might enter again. The claims of the lock at key are in ARGV from
-- first to last.
local function keep(key, margin, first, last)
  local fields, places = {'HMGET', key, 'v', 'o', 'x', 'g', 'f', 'm'}, {'HMGET', key}
  for i = first, last, 3 do fields[#fields + 1] = 'w:' .. ARGV[i] end
  fields = redis.pcall(unpack(fields))
  local owner, expires, group, counter = fields[2], int(fields[3]), read_group(fields[4]), int(fields[5])
  if fields[1] ~= 'h2' or not group or not counter or group.waiting == 0 or group.mode == 'r' or
    (group.holders > 0) == (owner ~= false) or (owner and not (expires and expires > now)) or
    (not owner and (guard or now >= group.soonest)) then
    return
  end
  places[3] = 'q:' .. text(group.head)
  for i = 7, #fields do
    if fields[i] then places[#places + 1] = 'q:' .. fields[i] end
  end
  local found = redis.pcall(unpack(places))
  local sets, positions, at, latest, ms = {'HSET', key}, {}, 1, group.latest, 0
  local head = string.match(found[1] or '', '^(%d+) ')
  if not head or tonumber(head) <= now then return end
  for i = first, last, 3 do
    local name, ttl, lease = unpack(ARGV, i, i + 2)
    local n = #positions + 1
    local number = fields[n + 6]
    positions[n] = '0'
    if number then
      at = at + 1
      local ends, asks, who = string.match(found[at] or '', '^(%d+) %d+ [^ ]* ([^ ]+ %d+ ([^ ]+) .*)$')
      if who ~= name then return end
      if tonumber(ends) > now then
        positions[n], ends = position(number, group), math.max(ends, now + 1 + ttl)
        if number + 0 == group.head then ms = (owner and expires or group.soonest) - now end -- safeguard: heartbeat-asks
        latest = math.max(latest, ends)
        sets[#sets + 1] = places[at + 2]
        sets[#sets + 1] = text(ends) .. ' ' .. lease .. ' ' .. client .. ' ' .. asks
      end
    end
  end
  if latest > group.latest then
    group.latest = latest + 10000 -- see outlast in lib/lock: so that most heartbeats leave it alone
    sets[#sets + 1] = 'g'
    sets[#sets + 1] = write_group(group)
  end
  if #sets > 2 and type(redis.pcall(unpack(sets))) ~= 'number' then return end -- out of memory
  if latest ~= group.latest and sets[#sets - 1] == 'g' then
    local needed = group.latest - now + margin
    if redis.call('PTTL', key) < needed then redis.pcall('PEXPIRE', key, text(needed)) end
  end
  return table.concat(positions, ' '), counter, ms, owner and fields[6] or ''
end

local reply, first = {OK}, 3
for n = 1, tonumber(how_many) do
  local margin, claims = unpack(ARGV, first, first + 1)
  local last = first + 1 + 3 * claims
  local positions, counter, ms, meta = keep(locks[n], margin, first + 2, last)
  if positions or several then
    local i = #reply
    reply[i + 1], reply[i + 2] = positions or '', counter or 0
    reply[i + 3], reply[i + 4] = ms or 0, meta or ''
  end
  first = last + 1
end
if #reply > 1 then return reply end
local stored = redis.pcall('GET', key)
-- uses: lib/run lib/tombstones lib/short lib/lock lib/state lib/holders lib/queue
-- Commands and their errors. Commands go through redis.pcall: its errors begin with the server's
-- own word (OOM, READONLY), those of redis.call with a line number on Redis 6.
local function refused(reply) return type(reply) == 'table' and reply.err end

-- stop ends way in answer(way) with reply. Nothing has been written then. (The reply is in a table,
-- as pcall of Redis 7 makes a text of an error with a field err.)
local function stop(reply) error({reply = reply}, 0) end

local function answer(way)
  local done, reply = pcall(way)
  if not done and type(reply) ~= 'table' then error(reply, 0) end
  return done and reply or reply.reply
end

-- run executes a command; if the server refuses it, its error is the script's reply.
local function run(...)
  local reply = redis.pcall(...)
  if refused(reply) then stop(reply) end
  return reply
end

-- primary stops at a replica, which may lag behind and must not say no: there HDEL is refused. It
-- deletes nothing, and is taken when out of memory, and so is all that follows it in the same
-- script.
local function primary()
  local reply = redis.pcall('HDEL', KEYS[1], '-')
  if refused(reply) and not string.find(reply.err, 'WRONGTYPE', 1, true) then stop(reply) end
end
-- Tombstones, 'until id;': claims that were released while an attempt of them may be in flight. An
-- attempt that arrives before its tombstone ends is refused. Ids have no blank and no semicolon.

-- read_tombstones returns those that have not ended, nil if the list is damaged.
local function read_tombstones(list)
  local tombs, length = {ends = 0}, 0
  for ends, who in string.gmatch(list, '(%d+) ([^ ;]+);') do
    length = length + #ends + #who + 2
    ends = int(ends)
    if not ends then return end
    if ends > now then
      tombs[#tombs + 1] = {ends = ends, id = who}
      tombs.ends = math.max(tombs.ends, ends)
    end
  end
  return length == #list and tombs or nil
end

local function write_tombstones(tombs)
  local list = {}
  for i, tomb in ipairs(tombs) do list[i] = text(tomb.ends) .. ' ' .. tomb.id .. ';' end
  return table.concat(list)
end

local function isTombstoned(tombs, who)
  for _, tomb in ipairs(tombs) do
    if tomb.id == who then return true end
  end
end

-- addTombstone adds a tombstone for ms, in the place of an older one of the same id. There are 32
-- at most, so that everyone's work is bounded: then the one that ends first makes room.
local function addTombstone(tombs, who, ms)
  local first = 1
  for i = #tombs, 1, -1 do
    if tombs[i].id == who then table.remove(tombs, i) end
  end
  for i, tomb in ipairs(tombs) do
    if tomb.ends < tombs[first].ends then first = i end
  end
  if #tombs >= 32 then table.remove(tombs, first) end
  tombs[#tombs + 1] = {ends = now + 1 + ms, id = who}
  tombs.ends = math.max(tombs.ends, now + 1 + ms)
end
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
-- The lock: load reads it, the other libraries change it in memory, and commit writes it. Nothing
-- is written before, so every check comes before the first write, and a script that finds damage
-- has changed nothing. Scripts run one at a time: no race is inside a script.
--
-- lock is the group (see lib/group), and of one exclusive hold the owner and when its lease
-- expires. counter is the last token; an exclusive hold has the last ones up to it.
local lock
local hash = type(stored) == 'table'
local cache, changes = {}, {} -- fields as they are stored, and as they are to be; false: not there
local messages = {} -- {channel, message}, published after the change, so that a waiter finds it done

-- STEPS bounds what one script does for others (places passed over or let in, holders looked at);
-- more says that something is left to the next script, so the caller is told to ask again soon.
local STEPS, more = 128, false

local function damaged(what) stop({FOREIGN, 'a lock with damaged ' .. what}) end

-- weighed reads 'n' or 'n*weight'; the weight is 1 unless it is told, and nil if it is damaged.
local function weighed(stored)
  local n, weight = int(stored), 1
  if stored and not n then
    n, weight = string.match(stored, '^(%d+)%*(%d+)$')
    n, weight = int(n), int(weight)
  end
  return n, weight
end

local function fetch(fields)
  local values = hash and #fields > 0 and run('HMGET', key, unpack(fields))
  for i, field in ipairs(fields) do cache[field] = values and values[i] or false end
end

local function get(field)
  local value = changes[field]
  if value ~= nil then return value end
  if cache[field] == nil then fetch({field}) end
  return cache[field]
end

-- load reads the lock, and the fields it is given too if it is a HASH. Afterwards there is no data,
-- or a lock of this layout with sane fields: no damaged expiry is read as "over" and granted over.
local function load(...)
  local owner, expires, counter = false, 0, 0
  local not_now = type(stored) == 'string' and moving() -- before the first write: it may become a HASH
  if not_now then stop(not_now) end
  -- Before the clock: if the server stands still in between, a lease seems to end later, not
  -- sooner.
  local left = type(stored) == 'string' and run('PTTL', key) or -1
  read_clock()
  if hash then
    if not string.find(stored.err, 'WRONGTYPE', 1, true) then stop(stored) end
    fetch({'v', 'o', 'x', 'f', 'z', 'g', ...})
    if not cache.v then stop({FOREIGN, 'a hash without a layout version'}) end
    if cache.v ~= 'h2' then stop({FOREIGN, 'a layout version that is not known here'}) end
    owner, expires, counter = cache.o, int(cache.x), int(cache.f)
    if not counter or owner == '' or (owner and not expires) then damaged('fields') end
    if not owner then expires = 0 end
  elseif stored then
    counter = string.match(stored, IS_FREE)
    if not counter then
      local margin
      counter, margin, owner, cache.b, cache.m = string.match(stored, IS_HELD)
      if not counter then
        stop({FOREIGN, 'not a lock, or damaged, or of a layout version that is not known here'})
      end
      expires = int(margin) and now + left - margin or damaged('fields')
    end
    counter = int(counter)
    if not counter or left < 0 then damaged('counter, or that never ends') end
  end
  lock = read_group(cache.g)
  if not lock or (owner and lock.holders > 0) then damaged('group') end
  lock.owner, lock.expires, lock.was_expires = owner, expires, expires
  lock.counter, lock.was_counter, lock.left, lock.tombs = counter, counter, left, {ends = 0}
  if cache.z then lock.tombs = read_tombstones(cache.z) or damaged('tombstones') end
end

-- outlast makes the key outlast ends. It asks for a second more, so that most scripts on a busy key
-- find that its expiry is late enough and do not touch it.
local function outlast(ends)
  if ends > lock.latest then lock.latest, lock.outlasts = ends + 1000, true end
end

-- write makes a script's first write. A script that takes something is refused when out of memory,
-- and has written nothing then. One that frees or keeps is not refused: see primary.
local function write(frees, ...)
  local reply = redis.pcall(...)
  if refused(reply) and frees then
    primary()
    reply = redis.pcall(...)
  end
  if refused(reply) then stop(reply) end
end

-- commit writes what was changed and returns reply; frees is true for a script that takes nothing.
local function commit(keep, frees, reply)
  local tombs, group = lock.tombs, write_group(lock)
  if group ~= (cache.g or false) then changes.g = group end
  if lock.counter ~= lock.was_counter then changes.f = text(lock.counter) end
  if lock.turned or lock.expires ~= lock.was_expires then
    changes.x = lock.owner and text(lock.expires)
  end
  if lock.turned then changes.o, changes.m, changes.b = lock.owner, lock.meta, lock.count end
  -- Tombstones that are over go with the next write; they are no reason for one.
  if lock.tombstoned or (cache.z and next(changes)) then
    local list = #tombs > 0 and write_tombstones(tombs)
    if list ~= cache.z then changes.z = list end
  end
  if not next(changes) then
    if reply[1] == LOST then primary() end
    return reply
  end
  keep = math.max(keep, lock.keep or 0) + ahead(lock.counter)

  if not group and #tombs == 0 then
    -- All of a lock that is free, or has one exclusive holder: a string, whose key outlives the
    -- lease by the margin. When another holds, the key is not given less time than it has.
    local value, left = H2 .. text(lock.counter), 0
    if lock.owner and lock.expires > now then
      left = lock.expires - now
      if lock.owner ~= id and not lock.keep then keep = math.max(keep, run('PTTL', key) - left) end
      value = value .. ' ' .. text(keep) .. ' ' .. lock.owner .. ' ' .. (get('b') or '1') .. ' ' ..
        (get('m') or '')
      -- safeguard: marked-again
      if hash and string.sub(value, -1) ~= ' ' then value = value .. ' ' end -- see hand_over in RELEASE
    end
    write(frees, 'SET', key, value, 'PX', text(left + keep))
  else
    if not hash then
      changes.v, changes.f, changes.o = 'h2', text(lock.counter), lock.owner
      if lock.owner then
        changes.x, changes.m, changes.b = text(lock.expires), get('m'), get('b')
      end
      if stored and frees then
        write(true, 'DEL', key)
      elseif stored then
        write(false, 'SET', key, stored, 'KEEPTTL') -- refused when out of memory, and DEL is not
        redis.pcall('DEL', key)
      end
    end
    local sets, deletes = {'HSET', key}, {'HDEL', key}
    for field, value in pairs(changes) do
      if value then
        sets[#sets + 1] = field
        sets[#sets + 1] = value
      else
        deletes[#deletes + 1] = field
      end
    end
    if #sets > 2 then write(frees, unpack(sets)) end
    if hash and #deletes > 2 then
      local done = redis.pcall(unpack(deletes))
      if #sets == 2 and refused(done) then stop(done) end
    end
    -- The key must outlive its holds, places and tombstones, and then the retention. This collects
    -- garbage and never ends a hold. Others may have given the key more time: it is not shortened.
    if not hash or lock.outlasts or #tombs > 0 or lock.counter > us then
      local left = hash and redis.pcall('PTTL', key) or lock.left
      local needed = math.max(lock.expires, tombs.ends, lock.latest, now) - now + keep
      if type(left) ~= 'number' then left = -1 end
      if not hash or left < needed then redis.pcall('PEXPIRE', key, text(math.max(left, needed))) end -- safeguard: long-expiry
    end
  end
  for _, message in ipairs(messages) do redis.pcall('PUBLISH', message[1], message[2]) end
  return reply
end
-- What a holder leaves beside the lock, for those who hold later: keys of its slot that outlive
-- holds.
--   <key>:state   what it saved; without an expiry
--   <key>:ran     'token began': the last run of a job that has ended, and the key's last token then. By
--                 it claims are not to be granted that heed it ('!'); it is kept for MarkLife in the contract
--   <key>:early   '2' for as long as that run's own time is: for versions before, which know no other
--                 mark and leave '1'
-- They are written by the script that proves the hold, before all else, so one that is refused (out
-- of memory) has written nothing. After a first write no other one is refused.
local saving, run_token, began, rest, keep_run = false -- what this script is about to leave

-- leave_state takes what a holder leaves from the arguments: 'every ran keep' in ms, and '+' with a
-- state, or nothing.
local function leave_state(job, state)
  local every, ran
  every, ran, keep_run = string.match(job, '^(%d+) (%d+) (%d+)$')
  if every then run_token, began, rest = lock.counter, now - ran, every - ran end
  saving = string.sub(state, 1, 1) == '+' and string.sub(state, 2)
end

local function write_state()
  if saving then write(false, 'SET', key .. ':state', saving) end
  if run_token then
    write(false, 'SET', key .. ':ran', text(run_token) .. ' ' .. text(began), 'PX', keep_run)
    redis.pcall('DEL', key .. ':early')
    if rest > 0 then redis.pcall('SET', key .. ':early', '2', 'PX', text(rest)) end
  end
end

-- too_early returns nil if a job may be granted, else for how many ms it may not, which is 0 if it has run
-- since the claim was refused first: awaited was the last token then. Tokens rise with the grants of a key:
-- so whoever held then has run the job, or a later one has.
local function too_early(every, awaited)
  local left, run_of, mark = 0, run('GET', key .. ':ran'), run('GET', key .. ':early')
  if mark == '1' then -- safeguard: own-time
    left = run('PTTL', key .. ':early')
    if left > 0 then return left end
  end
  if not run_of then return end
  local token, start = string.match(run_of, '^(%d+) (%d+)$')
  token, start = int(token), int(start)
  if not start then damaged('mark of a job') end
  left = math.max(start + every - now, 0)
  if left > 0 or awaited > 0 and token >= awaited then return left end -- safeguard: awaited
end

-- read_state returns '+' and the state, or '-' for none; what this script saves is the state
-- already.
local function read_state()
  local state = saving or redis.pcall('GET', key .. ':state')
  if refused(state) then return state end
  return state and '+' .. state or '-'
end
-- Holders. An exclusive one is in lock.owner. Those who hold together are in the slots k:1 to
-- k:<lock.holders>, 'ends token owner id meta', without gaps (an empty owner is the id), and h:<id>
-- is the number of an id's slot. Behind the token of a permit that counts more than once is '*' and
-- its weight.
--
-- Capacity: whoever holds is counted. lock.holders grows only in admit, behind fits, and shrinks
-- only in drop, for a hold that is released or over by the only clock. So it is never below the
-- number of running leases, and fits never lets one too many in. A hold that is over may be counted
-- for a while, which is harmless. lock.weight changes in the same two places, by the weight that
-- the slot has from the one to the other; so it is never below the weight of the running leases.
local function read_slot(n)
  local ends, stored, owner, who, meta =
    string.match(get('k:' .. n) or '', '^(%d+) ([^ ]+) ([^ ]*) ([^ ]+) (.*)$')
  local token, weight = weighed(stored)
  ends = int(ends)
  if not ends or not token or not weight or weight < 1 then damaged('holders') end
  return {ends = ends, token = token, weight = weight, owner = owner, id = who, meta = meta}
end

local function write_slot(n, hold)
  local token = text(hold.token)
  if hold.weight > 1 then token = token .. '*' .. text(hold.weight) end
  changes['k:' .. n] = text(hold.ends) .. ' ' .. token .. ' ' .. hold.owner .. ' ' .. hold.id ..
    ' ' .. hold.meta
end

-- find_hold returns the slot and the hold of id, if it is among several.
local function find_hold()
  local n = lock.holders > 0 and get('h:' .. id)
  if not n then return end
  n = int(n)
  if not n or n < 1 or n > lock.holders then damaged('holders') end
  local hold = read_slot(n)
  if hold.id ~= id then damaged('holders') end
  return n, hold
end

-- drop takes hold out of slot n and moves the last one there. A purge under way loses nothing: if
-- the last one was seen, so it was, and else it is now in a slot that is still to be seen.
local function drop(n, hold)
  if n < lock.holders then
    local last = read_slot(lock.holders)
    write_slot(n, last)
    changes['h:' .. last.id] = text(n)
  end
  changes['k:' .. lock.holders], changes['h:' .. hold.id] = false, false
  lock.holders, lock.weight = lock.holders - 1, lock.weight - hold.weight
  if lock.weight < lock.holders or (lock.holders == 0 and lock.weight > 0) then
    damaged('holders')
  end
  lock.unseen = math.min(lock.unseen, lock.holders) -- safeguard: drop-unseen
  if lock.holders == 0 then lock.mode, lock.soonest, lock.unseen, lock.seen = '-', 0, 0, 0 end
end

-- purge drops holds that are over, looking at STEPS at a time, from the last slot down. It looks
-- only when one may be: soonest is lowered by every new lease, and raised at the end of a complete
-- look.
local function purge()
  if lock.holders == 0 or now < lock.soonest then return end
  if lock.unseen == 0 then lock.unseen, lock.seen = lock.holders, LAST end
  local first, fields = math.max(1, lock.unseen - STEPS + 1), {}
  for n = first, lock.unseen do fields[#fields + 1] = 'k:' .. n end
  fetch(fields)
  for n = lock.unseen, first, -1 do
    local hold = read_slot(n)
    -- safeguard: running-leases
    if hold.ends > now then lock.seen = math.min(lock.seen, hold.ends) else drop(n, hold) end
  end
  lock.unseen = math.min(first - 1, lock.holders)
  if lock.unseen > 0 then more = true elseif lock.holders > 0 then lock.soonest = lock.seen end
end

-- fits reports whether claim may hold beside those who hold: nobody, or readers for a reader,
-- permits whose weights add up to no more than their limit, holds of the same re-entrant owner
-- (whose last one a purge may yet drop).
local function fits(claim)
  if closed or (lock.owner and lock.expires > now) then return false end
  if lock.holders == 0 then return true end
  if claim.mode ~= lock.mode then return false end
  if claim.mode == 'p' then
    return lock.weight + claim.weight <= lock.limit and claim.limit == lock.limit
  end
  if claim.mode == 's' then return true end
  local hold = lock.unseen == 0 and read_slot(1)
  return hold and (hold.owner == '' and hold.id or hold.owner) == claim.owner
end

-- turn makes owner the exclusive holder, or nobody.
local function turn(owner, expires, meta, count)
  lock.owner, lock.expires, lock.turned = owner, expires, true
  lock.meta, lock.count, cache.m, cache.b = meta, count, meta, count
end

-- admit lets claim in for lease ms and returns its first token and how many it has. It is the only
-- place on the long way that grants, and its callers have asked fits. Each token is above counter,
-- the highest so far, and is stored in the step that grants; so tokens rise in the order of grants.
-- Another hold of a re-entrant owner is no new ownership, and has the token of the first.
--
-- If the owner's lease ran out, as else claim would not fit, lapsed is the last token it had.
local lapsed
local function admit(claim, lease)
  local ends, token, count = now + 1 + lease, nil, 1 -- safeguard: whole-lease
  if lock.owner and lock.owner ~= claim.id then lapsed = lock.counter end
  if lock.mode == 'r' then
    token = read_slot(1).token
  else
    local least = math.max(us, claim.min_token or 0)
    token = math.max(lock.counter + 1, least)
    -- A reserve that would end beyond NEAR is cut: however fast the key changes hands, its tokens
    -- do not run away from the clock. (A single one cannot: no µs sees two grants.)
    if claim.mode == 'x' then count = math.max(1, math.min(claim.reserve, least + NEAR - token)) end
    lock.counter = token + count - 1
    if lock.counter > LAST then stop({FOREIGN, 'a lock whose token counter is used up'}) end
  end
  outlast(ends)
  if claim.mode == 'x' then
    turn(claim.id, ends, claim.meta, text(count))
    lock.keep = claim.keep -- safeguard: handed-keep
    return token, count
  end
  if lock.owner then turn(false, 0, false, false) end -- its lease is over, else claim would not fit
  if lock.holders == 0 then
    lock.mode, lock.soonest = claim.mode, ends
    if claim.mode == 'p' then lock.limit = claim.limit end
  end
  lock.holders, lock.weight = lock.holders + 1, lock.weight + claim.weight
  lock.soonest = math.min(lock.soonest, ends)
  if lock.unseen > 0 then lock.seen = math.min(lock.seen, ends) end -- safeguard: admitted-unseen
  if get('k:' .. lock.holders) then damaged('holders') end -- more hold than were counted
  changes['h:' .. claim.id] = text(lock.holders)
  write_slot(lock.holders, {ends = ends, token = token, weight = claim.weight, id = claim.id,
    meta = claim.meta, owner = claim.owner == claim.id and '' or claim.owner})
  return token, 1
end

-- tokens returns the first token of the exclusive hold and how many it has: those up to counter.
local function tokens()
  local count = int(get('b') or '1')
  if not count or count < 1 or count > 1024 or count > lock.counter then damaged('tokens') end -- safeguard: most-reserved
  return lock.counter - count + 1, count
end

-- extend makes id's hold last for ttl from now at least and returns its tokens, if its lease is
-- running. One that is over is not revived, even if nobody took the key since: its owner may have
-- been told so. A lease only grows.
local function extend(ttl)
  local ends = now + 1 + ttl -- safeguard: whole-renewal
  if lock.owner == id and lock.expires > now then
    lock.expires = math.max(lock.expires, ends)
    outlast(lock.expires)
    return tokens()
  end
  local n, hold = find_hold()
  if not hold or hold.ends <= now then return end
  hold.ends = math.max(hold.ends, ends)
  outlast(hold.ends) -- safeguard: renewal-outlasts
  write_slot(n, hold)
  return hold.token, 1
end
-- The queue. A place is q:<number>, 'ends lease client mode,limit,owner keep id reserve meta', with
-- 'x' alone for the form of a plain exclusive claim, and 'limit*weight' for the limit of a permit
-- that counts more than once, which a client that knows no weights takes for damage. lock.head and
-- lock.tail are the first and the last number, with gaps where a claim left; lock.waiting counts
-- the places, lock.permits those for permits. w:<id> is the number of an id's place, looked up
-- before it is given one: a repeat never has two.

-- read_place makes a claim of a place, or of one that is put together of a claim's arguments.
local function read_place(place)
  local ends, lease, client, form, tail, keep, who, reserve, meta =
    string.match(place, '^(%d+) (%d+) ([^ ]*) ([^ ]+) ((%d+) ([^ ]+) (%d+) (.*))$')
  local flags, mode, limit, weight, owner, job, every, awaited, stored = '', 'x', 0, 1, ''
  if form and form ~= 'x' then
    job, flags, mode, stored, owner = string.match(form, '^([!:%d]*)(%+?)([xspr]),([^,]+),(.*)$')
    every, awaited = string.match(job or '', '^!(%d+):(%d+)$')
    limit, weight = weighed(stored)
  end
  keep, reserve, ends = int(keep), int(reserve), int(ends)
  if not (keep and limit and weight and reserve and ends and int(lease)) or reserve < 1 or
    reserve > 1024 or (mode == 'p') ~= (limit > 0) or weight < 1 or weight > math.max(limit, 1) then
    damaged('queue')
  end
  return {ends = ends, lease = lease, client = client, id = who, mode = mode, limit = limit,
    weight = weight, owner = owner == '' and who or owner, reserve = reserve, meta = meta, keep = keep,
    asks = form .. ' ' .. tail, loads = flags == '+', every = int(every), awaited = int(awaited)}
end

-- find_place returns the number of the place of who, when it ends, what it asks for and in which mode.
local function find_place(who)
  local number = lock.waiting > 0 and get('w:' .. who)
  if not number then return end
  local ends, asks, mode, found =
    string.match(get('q:' .. number) or '', '^(%d+) %d+ [^ ]* (%+?([xspr])[^ ]* %d+ ([^ ]+) .*)$')
  number, ends = int(number), int(ends)
  if not (number and ends) or found ~= who or number < lock.head or number > lock.tail then
    damaged('queue')
  end
  return number, ends, asks, mode
end

local function write_place(number, ends, lease, client, asks)
  changes['q:' .. number] = text(ends) .. ' ' .. lease .. ' ' .. client .. ' ' .. asks
  outlast(ends)
end

-- leave takes the place of who out of the queue.
local function leave(number, who, mode)
  changes['q:' .. number], changes['w:' .. who] = false, false
  lock.waiting = lock.waiting - 1
  if mode == 'p' then lock.permits = lock.permits - 1 end
  if lock.waiting < 0 or lock.permits < 0 then damaged('queue') end
  if number == lock.head then lock.head = number + 1 end
  if lock.waiting == 0 then lock.head, lock.tail = 1, 0 end
end

-- advance ends what is over, and then lets the head of the queue in as long as it fits: readers
-- together, a writer alone. It stops at the first that does not fit, so nobody is overtaken.
-- Afterwards, unless more is set, nobody waits, or the head is alive and does not fit; first is the
-- first that was let in, one of so many.
--
-- Whoever is let in holds from now on, in the step that made the room, for the lease of its place
-- (at most its TTL). If it lives, it asks within that time and gets all of its TTL; if not, its
-- lease ends like any other. Leaving the queue and being let in are both steps of a script, so a
-- waiter that is cancelled has left before, or holds, and its release ends either.
--
-- It is told, unless it is asking: the message is a hint to ask, or a grant that its token proves.
-- With a line more it has the state that the claim loads; '?' says that it is to ask for that. So it
-- is where this script does not name the key of the state: if its slot is being moved to this server,
-- one that is not there may have yet to come, which a script that names it is told (TRYAGAIN).
local admitted, first = 0, nil
local function advance(asking)
  purge()
  local steps, fetched = 0, lock.head
  while lock.waiting > 0 do
    if steps == STEPS then
      more = true
      return
    end
    if lock.head > fetched then -- the first was not the last: look at the next ones together
      local fields = {}
      fetched = math.min(lock.tail, lock.head + steps)
      for number = lock.head, fetched do fields[#fields + 1] = 'q:' .. number end
      fetch(fields)
    end
    steps = steps + 1
    local place = get('q:' .. lock.head)
    local claim = place and read_place(place)
    if not claim then -- it left
      lock.head = lock.head + 1
      if lock.head > lock.tail then damaged('queue') end
    elseif claim.ends <= now then
      leave(lock.head, claim.id, claim.mode)
    elseif fits(claim) then
      leave(lock.head, claim.id, claim.mode)
      admitted, first = admitted + 1, first or claim
      local token, count = admit(claim, claim.lease)
      if claim.id ~= asking and claim.client ~= '' then
        local state = claim.loads and read_state()
        if refused(state) or (state == '-' and #KEYS == 1) then state = '?' end -- safeguard: moving-state
        messages[#messages + 1] = {string.match(key, '^[^{]*') .. '@' .. claim.client,
          text(token) .. ' ' .. count .. ' ' .. claim.lease .. ' ' .. claim.id .. ' ' .. key ..
            (state and '\n' .. state or '')}
      end
    else
      return
    end
  end
end

local function long()
  local margin, claims = unpack(ARGV, 3, 4)
  local last = 4 + 3 * claims
  local numbers, places, positions, ms = {'m'}, {}, {}, 0
  for i = 5, last, 3 do numbers[#numbers + 1] = 'w:' .. ARGV[i] end
  load(unpack(numbers))
  places[1] = 'q:' .. lock.head
  for i = 2, #numbers do
    if cache[numbers[i]] then places[#places + 1] = 'q:' .. cache[numbers[i]] end
  end
  fetch(places)
  advance()
  for i = 5, last, 3 do
    local name, ttl, lease = unpack(ARGV, i, i + 2)
    local n = #positions + 1
    local number, ends, asks = find_place(name)
    positions[n] = '0'
    if number and ends > now then
      write_place(number, math.max(ends, now + 1 + ttl), lease, client, asks)
      -- safeguard: heartbeat-owner
      if lock.mode ~= 'r' or not fits(read_place(get('q:' .. number))) then
        positions[n] = position(number, lock)
      end
      if number == lock.head then
        ms = math.max(0, (lock.owner and lock.expires or lock.holders > 0 and lock.soonest or now) - now)
      end
    end
  end
  if more then ms = 1 end -- safeguard: heartbeat-more
  return commit(tonumber(margin), true,
    {OK, table.concat(positions, ' '), lock.counter, ms, lock.owner and get('m') or ''})
end
return answer(long)
