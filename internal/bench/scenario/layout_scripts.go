package scenario

// The throw-away scripts of the layout question. They do what the fast path of a lock must do, and nothing for the rest:
// an upper bound of what a layout can win.
const (
	layoutClock = `
local t = redis.call('TIME')
local us = t[1] * 1000000 + t[2]
local now = math.floor(us / 1000)
`

	hashAcquire = layoutClock + `
local h = redis.call('HMGET', KEYS[1], 'v', 'o', 'x', 'f', 'z')
local f = tonumber(h[4]) or 0
if h[1] and h[1] ~= 'h1' or h[5] then return {4, 'the slow path'} end
if h[2] and tonumber(h[3]) > now then return {2, tonumber(h[3]) - now} end
local token, x = math.max(f + 1, us), now + 1 + ARGV[2]
redis.call('HSET', KEYS[1], 'v', 'h1', 'o', ARGV[1], 'x', string.format('%.0f', x), 'f', string.format('%.0f', token),
  'm', ARGV[3], 's', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[2] + ARGV[4])
return {1, token}`

	hashRelease = layoutClock + `
local h = redis.call('HMGET', KEYS[1], 'v', 'o', 'x', 'z')
if h[1] ~= 'h1' or h[4] then return {4, 'the slow path'} end
if h[2] ~= ARGV[1] then return {3} end
redis.call('HDEL', KEYS[1], 'o', 'x', 'm', 's')
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PUBLISH', ARGV[5], 'free')
if tonumber(h[3]) > now then return {1} end
return {5}`

	stringAcquire = layoutClock + `
local v, token = redis.call('GET', KEYS[1]), us
if v then
  local f, x, id = string.match(v, '^1|(%d+)|(%d*)|([^|]*)')
  if not f then return {4, 'foreign'} end
  if id ~= '' and tonumber(x) > now then return {2, tonumber(x) - now} end
  token = math.max(tonumber(f) + 1, us)
end
redis.call('SET', KEYS[1], string.format('1|%.0f|%.0f|%s|%s', token, now + 1 + ARGV[2], ARGV[1], ARGV[3]), 'PX', ARGV[2] + ARGV[4])
return {1, token}`

	stringRelease = layoutClock + `
local v = redis.call('GET', KEYS[1])
if not v then return {3} end
local f, x, id = string.match(v, '^1|(%d+)|(%d*)|([^|]*)')
if not f then return {4, 'foreign'} end
if id ~= ARGV[1] then return {3} end
redis.call('SET', KEYS[1], '1|' .. f .. '||', 'PX', ARGV[4])
redis.call('PUBLISH', ARGV[5], 'free')
if tonumber(x) > now then return {1} end
return {5}`

	incrAcquire = `
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[2]) end
return 0`

	incrRelease = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
)
