-- An owner that is not ours is a peer's: any string but the empty one. What is no string is nobody's lock.
local o, side = redis.pcall('GET', K), redis.pcall('GET', S)
for _, v in ipairs({o, side}) do
  if type(v) == 'table' then
    if string.find(v.err, 'WRONGTYPE', 1, true) then return {FOREIGN, 'not a string'} end
    return v
  end
end
local f, count, z, ours = 0, 1, '', ''
if side then
  f, count, ours, z = string.match(side, '^h2 (%d+) (%d+) ([^ ]*) (.*)$')
  f, count = int(f), int(count)
  if not f or not count or count < 1 or count > 1024 or count > f then
    return {FOREIGN, 'a counter that is not one of ours, or damaged'}
  end
end
if o and o == id and o ~= ours then return {FOREIGN, 'a lock of ours without its counter'} end
