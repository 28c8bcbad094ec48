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
