-- The long way reads through get, writes through put, and nothing reaches the key before commit. So every check comes before
-- the first write, whatever is found on the way; and a script that finds damage says so in broken, goes on without harm,
-- and is refused by commit.
local broken
local was, will = {}, {}
local function damaged(what) broken = broken or ('a lock with damaged ' .. what) end

local function fetch(fields)
  local r = long and #fields > 0 and redis.call('HMGET', K, unpack(fields))
  for i, field in ipairs(fields) do was[field] = r and r[i] or false end
end

local function get(field)
  local s = will[field]
  if s ~= nil then return s end
  if was[field] == nil then fetch({field}) end
  return was[field]
end

local function put(field, s) will[field] = s end -- false deletes

-- STEPS bounds what one script does for others: entries of the line passed over or let in, holders looked at. What is left
-- is done by the next script on the key; more says that there is something left, so whoever asks is told to ask soon.
local STEPS, more = 128, false
local asker = false -- an id that has its answer from this script, and needs no message

-- g, for those who are not one exclusive holder alone:
--   gm gl  mode of the group that holds (s shared, p permits, r holds of one re-entrant owner, - none), limit of permits
--   gn     how many hold, at slots k:1 to k:gn
--   gx     not later than the earliest end of a lease among them
--   gc ga  a look at all of them that is under way: slots above gc are done, the earliest end among those is ga
--   mx     not earlier than the latest end of a lease or of a place; for the life of the key only
--   qh qt  the line is at q:qh to q:qt, with gaps where somebody left
--   qn qp  how many stand in it, and how many of them for permits
local gm, gl, gn, gx, gc, ga, mx, qh, qt, qn, qp = '-', 0, 0, 0, 0, 0, 0, 1, 0, 0, 0
if g then
  local n = {string.match(g, '^([-spr]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')}
  for i = 2, 11 do
    n[i] = int(n[i])
    if not n[i] then return {FOREIGN, 'a lock with a damaged group'} end
  end
  gm, gl, gn, gx, gc, ga, mx, qh, qt, qn, qp = unpack(n)
  if (gn == 0) ~= (gm == '-') or gn + qn == 0 or (gn > 0 and o) or gc > gn or gn > 1e9 or
    qh < 1 or qt > 1e13 or qn > qt - qh + 1 or qp > qn or ((gm == 'p' or qp > 0) and gl < 1) then
    return {FOREIGN, 'a lock with a damaged group'}
  end
end
