-- Head of every script: reads the lock's main fields once, and refuses what is not ours before anything is written.
-- Scripts run one at a time, so what is true after this head stays true until the script ends: no race is inside a script.
local K, id = KEYS[1], ARGV[1]
local OK, HELD, LOST, FOREIGN, EXPIRED, MISMATCH = 1, 2, 3, 4, 5, 6

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
local h = redis.pcall('HMGET', K, 'v', 'o', 'x', 'f', 'm', 'z', 'g')
if h.err then
  if string.sub(h.err, 1, 9) == 'WRONGTYPE' then return {FOREIGN, 'not a hash'} end
  return h
end
local v, o, x, f, m, z, g = h[1], h[2], int(h[3]), int(h[4]), h[5], h[6], h[7]

-- Whatever the fields are, one of three holds afterwards: the key is free of data, it is a lock of this layout with sane
-- fields, or the script has ended. So a damaged expiry can never be read as "expired" and granted over.
if not v then
  if redis.call('EXISTS', K) == 1 then return {FOREIGN, 'a hash without a layout version'} end
  o, f, m, z, g = false, 0, false, false, false
elseif v ~= 'h1' then
  return {FOREIGN, 'a layout version that is not known here'}
elseif not f or (o and (o == '' or not x)) then
  return {FOREIGN, 'a lock with damaged fields'}
end
if not o then x = 0 end

-- The largest token; and how long a key must live at least so that its counter, if it ran ahead of the clock, is not
-- forgotten before the clock has caught up: after that only the clock keeps tokens rising.
local LAST = 9007199254740990
local function ahead(token) return math.max(0, 2 * math.ceil((token - us) / 1000)) end

-- A 'no' that the caller will act on must come from a primary: a replica may lag behind the grant. HDEL of a field that
-- never exists changes nothing, but a replica, or a server that takes no writes, refuses it.
local function lost()
  local r = redis.pcall('HDEL', K, '-')
  if type(r) == 'table' and r.err then return r end
  return {LOST}
end
