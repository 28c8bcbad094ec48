-- An owner that is not ours is a peer's: any string but the empty one. What is no string is nobody's lock.
local o, side = redis.pcall('GET', K), redis.pcall('GET', S)
for _, v in ipairs({o, side}) do
  if type(v) == 'table' then
    if string.find(v.err, 'WRONGTYPE', 1, true) then return {FOREIGN, 'not a string'} end
    return v
  end
end
local f, count, z, ours, meta = 0, 1, '', '', ''
if side then
  local n
  f, count, ours, n, z = string.match(side, '^h2 (%d+) (%d+) ([^ ]*) (%d+) (.*)$')
  f, count, n = int(f), int(count), int(n)
  if not (f and count and n) or count < 1 or count > 1024 or (f > 0 and count > f) or n > #z then
    return {FOREIGN, 'a counter that is not one of ours, or damaged'}
  end
  z, meta = string.sub(z, 1, n), string.sub(z, n + 1)
end
if o and o == id and o ~= ours then return {FOREIGN, 'a lock of ours without its counter'} end
