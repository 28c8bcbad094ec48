-- The long way begins here: it reads the lock's main fields once, in whichever form they are, and refuses what is not ours
-- before anything is written.

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

-- Whatever is stored, one of three holds after this: the key is free of data, it is a lock of this layout with sane fields,
-- or the script has ended. So a damaged expiry can never be read as "expired" and granted over.
local long, lives = type(s) == 'table', -1 -- lives: the key's expiry in ms, of the short form
local o, x, f, m, b, z, g = false, 0, 0, false, false, false, false
if long then
  if not string.find(s.err, 'WRONGTYPE', 1, true) then return s end
  local h = redis.pcall('HMGET', K, 'v', 'o', 'x', 'f', 'm', 'z', 'g', 'b')
  if h.err then return {FOREIGN, 'neither a string nor a hash'} end
  if h[1] ~= 'h2' then return {FOREIGN, h[1] and 'a layout version that is not known here' or 'a hash without a layout version'} end
  o, x, f, m, z, g, b = h[2], int(h[3]), int(h[4]), h[5], h[6], h[7], h[8]
  if not f or (o and (o == '' or not x)) then return {FOREIGN, 'a lock with damaged fields'} end
  if not o then x = 0 end
elseif s then
  local v, counter, rest = string.match(s, '^(h%d+) (%d+)(.*)$')
  if v ~= 'h2' then return {FOREIGN, v and 'a layout version that is not known here' or 'not a lock'} end
  f, lives = int(counter), redis.call('PTTL', K)
  if not f or lives < 0 then return {FOREIGN, 'a lock with a damaged counter, or that never ends'} end
  if rest ~= '' then
    local margin, who, count, meta = string.match(rest, '^ (%d+) ([^ ]+) (%d+) (.*)$')
    margin = int(margin)
    if not margin then return {FOREIGN, 'a lock with damaged fields'} end
    o, m, b, x = who, meta, count, now + lives - margin
  end
end

-- The largest token; and how long a key must live at least so that its counter, if it ran ahead of the clock, is not
-- forgotten before the clock has caught up: after that only the clock keeps tokens rising.
local LAST = 9007199254740990
local function ahead(token) return math.max(0, 2 * math.ceil((token - us) / 1000)) end
