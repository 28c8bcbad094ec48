-- Common head of every script: reads the lock's HASH once, and refuses what is not ours before anything is written.
-- Scripts run one at a time, so what is true after this head stays true until the script ends: no race is inside a script.
local K, id = KEYS[1], ARGV[1]
local OK, HELD, LOST, FOREIGN, EXPIRED = 1, 2, 3, 4, 5

-- The store's clock is the only clock: no client sends a time of day, only durations. TIME stands still within a script.
local t = redis.call('TIME')
local us = t[1] * 1000000 + t[2]
local now = math.floor(us / 1000)

-- Numbers are stored as plain digits: tostring() would write 1.7952e+15, and tonumber() reads 'nan', which no lease outlives.
local function text(n) return string.format('%.0f', n) end
local function int(s)
  if s and s ~= '' and #s <= 16 and not string.find(s, '%D') then
    local n = tonumber(s)
    if n < 9007199254740991 then return n end -- above 2^53, n + 1 may be n, and a token would not rise
  end
end

-- pcall, so that Redis' own code (WRONGTYPE, OOM, READONLY) stays the first word of the reply in every server version.
local h = redis.pcall('HMGET', K, 'v', 'o', 'x', 'f', 'm', 'z')
if h.err then
  if string.sub(h.err, 1, 9) == 'WRONGTYPE' then return {FOREIGN, 'not a hash'} end
  return h
end
local v, o, x, f, m, z = h[1], h[2], int(h[3]), int(h[4]), h[5], h[6]

-- Whatever the fields are, one of three holds afterwards: the key is free of data, it is a lock of this layout with sane
-- fields, or the script has ended. So a damaged expiry can never be read as "expired" and granted over.
if not v then
  if redis.call('EXISTS', K) == 1 then return {FOREIGN, 'a hash without a layout version'} end
  o, x, f, m, z = false, 0, 0, false, false
elseif v ~= 'h1' then
  return {FOREIGN, 'a layout version that is not known here'}
elseif not f or (o and (o == '' or not x)) then
  return {FOREIGN, 'a lock with damaged fields'}
end
x = x or 0

-- Tombstones: owners whose release has been seen, as 'until id;'. Ids are escaped: no space and no ';' in them.
local tombs, last, stale = {}, 0, false
if z then
  local seen = 0
  for ending, owner in string.gmatch(z, '(%d+) ([^ ;]+);') do
    local n = int(ending)
    if not n then return {FOREIGN, 'a lock with damaged tombstones'} end
    seen = seen + #ending + #owner + 2
    if n > now then
      tombs[#tombs + 1] = {n, owner}
      last = math.max(last, n)
    else
      stale = true
    end
  end
  if seen ~= #z then return {FOREIGN, 'a lock with damaged tombstones'} end
end

local function buried(owner)
  for _, tomb in ipairs(tombs) do
    if tomb[2] == owner then return true end
  end
  return false
end

local function graves()
  local out = {}
  for i, tomb in ipairs(tombs) do out[i] = text(tomb[1]) .. ' ' .. tomb[2] .. ';' end
  return table.concat(out)
end

-- Milliseconds that the key must live: the hold, every tombstone, then the retention, and longer if the token counter ran
-- ahead of the clock, since after the key is gone only the clock keeps tokens rising. Never ends a hold: x alone does.
local function life(keep, token)
  local ahead = math.max(0, 2 * math.ceil((token - us) / 1000))
  return text(math.max(x, last, now) - now + keep + ahead)
end

-- A 'no' that the caller will act on must come from a primary: a replica may lag behind the grant. HDEL of a field that
-- never exists changes nothing, but a replica, or a server that takes no writes, refuses it.
local function lost()
  local r = redis.pcall('HDEL', K, '-')
  if type(r) == 'table' and r.err then return r end
  return {LOST}
end

