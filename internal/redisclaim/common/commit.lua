-- commit writes what was changed and answers with reply. It is the only place on the long way that writes.
--
-- A script that takes something (grants, gives a place) begins with HSET, which Redis refuses when out of memory: then nothing
-- is written. One that frees or keeps begins with HDEL, which is taken, and so is HSET after it in the same script. The
-- HDEL is sent even if it deletes nothing when the reply is LOST: a replica may lag behind, and refuses it.
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
  local sets, dels = {}, {}
  for field, s in pairs(will) do
    if s then
      sets[#sets + 1] = field
      sets[#sets + 1] = s
    else
      dels[#dels + 1] = field
    end
  end
  local writes = #sets + #dels > 0
  if reply[1] == LOST or (frees and writes) then
    local r = redis.pcall('HDEL', K, '-', unpack(dels))
    if type(r) == 'table' and r.err then return r end
    dels = {}
  end
  if not writes then return reply end
  if not v then -- a key that is new has its version and its counter
    sets[#sets + 1] = 'v'
    sets[#sets + 1] = 'h1'
    if not will.f then
      sets[#sets + 1] = 'f'
      sets[#sets + 1] = text(f)
    end
  end
  if #sets > 0 then
    local r = redis.pcall('HSET', K, unpack(sets))
    if type(r) == 'table' and r.err then return r end
  end
  if #dels > 0 then redis.pcall('HDEL', K, unpack(dels)) end
  -- The key must outlive its holds, places and tombstones, and then the retention. This only collects garbage, and never ends
  -- a hold. Others may have given the key more time: then it is not shortened.
  local ms = math.max(x, last, mx, now) - now + keep + ahead(f)
  local left = (gn + qn > 0 or (o and o ~= id)) and redis.pcall('PTTL', K) or -1
  if type(left) ~= 'number' or left < ms then redis.pcall('PEXPIRE', K, text(ms)) end
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
