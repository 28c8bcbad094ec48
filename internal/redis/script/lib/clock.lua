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
