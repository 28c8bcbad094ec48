-- The long way begins here: it reads the lock's main fields once, in whichever form they are, and refuses what is not ours
-- before anything is written.

-- Whatever is stored, one of three holds after this: the key is free of data, it is a lock of this layout with sane fields,
-- or the script has ended. So a damaged expiry can never be read as "expired" and granted over.
local long = type(s) == 'table'
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
  f = int(counter)
  if not f or lives < 0 then return {FOREIGN, 'a lock with a damaged counter, or that never ends'} end
  if rest ~= '' then
    local margin, who, count, meta = string.match(rest, '^ (%d+) ([^ ]+) (%d+) (.*)$')
    margin = int(margin)
    if not margin then return {FOREIGN, 'a lock with damaged fields'} end
    o, m, b, x = who, meta, count, now + lives - margin
  end
end
