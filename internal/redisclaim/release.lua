-- RELEASE(id, tombstone ms or 0, keep, channel) -> {OK} | {EXPIRED} | {LOST} | {FOREIGN, why}
local tomb, keep = tonumber(ARGV[2]), tonumber(ARGV[3])
local mine, held = o == id, o == id and x > now

if not mine and tomb == 0 then return lost() end

-- The owner is compared in the script that deletes, so a late release never frees the next holder. HDEL and PEXPIRE go
-- first because Redis takes them when out of memory; f stays, so that the next token is above this one.
local r
if mine then
  r = redis.pcall('HDEL', K, 'o', 'x', 'm', 's')
  x = 0
else
  r = redis.pcall('HDEL', K, '-')
end
if type(r) == 'table' and r.err then return r end

if tomb > 0 then
  -- An attempt of this id may still be on another connection. It is refused if it lands before the tombstone ends, and it
  -- cannot have landed already, as the HDEL above has just cleared it.
  for i = #tombs, 1, -1 do
    if tombs[i][2] == id then table.remove(tombs, i) end
  end
  if #tombs >= 32 then -- bounded work for everyone: drop the one that ends first
    local first = 1
    for i, grave in ipairs(tombs) do
      if grave[1] < tombs[first][1] then first = i end
    end
    table.remove(tombs, first)
  end
  tombs[#tombs + 1] = {now + 1 + tomb, id}
  last = math.max(last, now + 1 + tomb)
  -- Can only be refused to a user that may not HSET, and such a user cannot have an acquire in flight.
  redis.pcall('HSET', K, 'v', 'h1', 'f', text(f), 'z', graves())
elseif stale then
  if #tombs > 0 then redis.pcall('HSET', K, 'z', graves()) else redis.pcall('HDEL', K, 'z') end
end

-- Another holder's key may have been given more time; it is never shortened.
local ms, left = life(keep, f), mine and -1 or redis.pcall('PTTL', K)
if type(left) ~= 'number' or left < tonumber(ms) then redis.pcall('PEXPIRE', K, ms) end
if not mine then return {LOST} end

-- After the deletion, which a server may refuse: whoever is woken finds the key free. Nothing is between the two for
-- others, as the script is one step. A user that may not publish has released all the same: those who wait ask again.
redis.pcall('PUBLISH', ARGV[4], 'free')
if held then return {OK} end
return {EXPIRED}
