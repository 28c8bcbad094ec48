-- The store's clock is the only clock: no client sends a time of day, only durations. It is read once:
-- before Redis 7.2 it goes on within a script.
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

-- The largest token; and how long a key must live at least so that its counter, if it ran ahead of the clock, is not
-- forgotten before the clock has caught up: after that only the clock keeps tokens rising.
local LAST = 9007199254740990
local function ahead(token) return math.max(0, 2 * math.ceil((token - us) / 1000)) end
