-- commit writes what was changed and answers with reply. It is the only place on the long way that writes.
--
-- A script that takes something (grants, gives a place) begins with a write that Redis refuses when out of memory: then
-- nothing is written. One that frees or keeps begins with HDEL, which is taken, and so is all that follows it in the same
-- script. That HDEL deletes nothing, and is sent even if nothing else is when the reply is LOST: a 'no' that the caller will
-- act on must come from a primary, and a replica, which may lag behind the grant, refuses it. (WRONGTYPE is no refusal.)
local function opening()
  local r = redis.pcall('HDEL', K, '-')
  if type(r) == 'table' and r.err and not string.find(r.err, 'WRONGTYPE', 1, true) then return r end
end

-- short writes the whole lock in its short form, which outlives the lease by its margin; an expired hold is left out. When
-- another holds, the key is not given less time than it has.
local function short(keep)
  local margin = keep + ahead(f)
  if not o or x <= now then return redis.pcall('SET', K, 'h2 ' .. text(f), 'PX', text(margin)) end
  if o ~= id then margin = math.max(margin, redis.call('PTTL', K) - (x - now)) end
  return redis.pcall('SET', K, 'h2 ' .. text(f) .. ' ' .. text(margin) .. ' ' .. o .. ' ' .. (b or '1') .. ' ' .. (m or ''),
    'PX', text(x - now + margin))
end

-- full writes the fields that were changed, and all of them if the lock was in its short form.
local function full(keep, frees)
  if not long then
    put('v', 'h2')
    put('f', text(f))
    if o then
      put('o', o)
      put('x', text(x))
      put('m', m)
      put('b', b)
    end
    if s then
      local r = not frees and redis.pcall('SET', K, s, 'KEEPTTL')
      if r and r.err then return r end
      redis.pcall('DEL', K)
    end
  end
  local sets, dels = {}, {}
  for field, value in pairs(will) do
    if value then
      sets[#sets + 1] = field
      sets[#sets + 1] = value
    else
      dels[#dels + 1] = field
    end
  end
  if #sets > 0 then
    local r = redis.pcall('HSET', K, unpack(sets))
    if type(r) == 'table' and r.err then return r end
  end
  if long and #dels > 0 then redis.pcall('HDEL', K, unpack(dels)) end
  -- The key must outlive its holds, places and tombstones, and then the retention. This only collects garbage, and never ends
  -- a hold. Others may have given the key more time: then it is not shortened.
  local ms = math.max(x, last, mx, now) - now + keep + ahead(f)
  local left = (gn + qn > 0 or (o and o ~= id)) and (long and redis.pcall('PTTL', K) or lives) or -1
  if not long or type(left) ~= 'number' or left < ms then
    redis.pcall('PEXPIRE', K, text(type(left) == 'number' and math.max(left, ms) or ms))
  end
  return OK
end

local function commit(keep, frees, reply, free)
  if broken then return {FOREIGN, broken} end
  local after = gn + qn > 0 and table.concat({gm, text(gl), text(gn), text(gx), text(gc), text(ga), text(mx),
    text(qh), text(qt), text(qn), text(qp)}, ' ')
  if after ~= g then put('g', after) end
  -- Tombstones that have ended go with the next write; they are no reason for one.
  if stale and (stale == 'new' or next(will) ~= nil) then
    local out = {}
    for i, tomb in ipairs(tombs) do out[i] = text(tomb[1]) .. ' ' .. tomb[2] .. ';' end
    put('z', #out > 0 and table.concat(out))
  end
  local writes = next(will) ~= nil
  if reply[1] == LOST or (frees and writes) then
    local r = opening()
    if r then return r end
  end
  if not writes then return reply end
  local r
  if gn + qn + #tombs == 0 then r = short(keep) else r = full(keep, frees) end
  if type(r) == 'table' and r.err then return r end
  -- Messages come after the change: whoever is woken finds what it was told.
  local base = #wakes > 0 and string.match(K, '^[^{]*') -- a prefix has no brace
  for _, w in ipairs(wakes) do
    local e = w[1]
    redis.pcall('PUBLISH', base .. '@' .. e.client,
      text(w[2]) .. ' ' .. text(e.reserve) .. ' ' .. text(e.lease) .. ' ' .. e.id .. ' ' .. K)
  end
  if free then redis.pcall('PUBLISH', free, 'free') end
  return reply
end
