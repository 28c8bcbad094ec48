-- Tombstones: acquisitions whose release has been seen, as 'until id;'. Ids are escaped: no space and no ';' in them.
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

local function buried()
  for _, tomb in ipairs(tombs) do
    if tomb[2] == id then return true end
  end
  return false
end

-- bury leaves a tombstone of id for ms. An attempt of this id may still be on another connection: it is refused if it lands
-- before the tombstone ends, and if it has landed already, this very script has undone it.
local function bury(ms)
  for i = #tombs, 1, -1 do
    if tombs[i][2] == id then table.remove(tombs, i) end
  end
  if #tombs >= 32 then -- bounded work for everyone: drop the one that ends first
    local first = 1
    for i, tomb in ipairs(tombs) do
      if tomb[1] < tombs[first][1] then first = i end
    end
    table.remove(tombs, first)
  end
  tombs[#tombs + 1] = {now + 1 + ms, id}
  last, stale = math.max(last, now + 1 + ms), 'new'
end
