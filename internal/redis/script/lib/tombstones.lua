-- Tombstones, 'until id;': claims that were released while an attempt of them may be in flight. An
-- attempt that arrives before its tombstone ends is refused. Ids have no blank and no semicolon.

-- read_tombstones returns those that have not ended, nil if the list is damaged.
local function read_tombstones(list)
  local tombs, length = {ends = 0}, 0
  for ends, who in string.gmatch(list, '(%d+) ([^ ;]+);') do
    length = length + #ends + #who + 2
    ends = int(ends)
    if not ends then return end
    if ends > now then
      tombs[#tombs + 1] = {ends = ends, id = who}
      tombs.ends = math.max(tombs.ends, ends)
    end
  end
  return length == #list and tombs or nil
end

local function write_tombstones(tombs)
  local list = {}
  for i, tomb in ipairs(tombs) do list[i] = text(tomb.ends) .. ' ' .. tomb.id .. ';' end
  return table.concat(list)
end

local function isTombstoned(tombs, who)
  for _, tomb in ipairs(tombs) do
    if tomb.id == who then return true end
  end
end

-- addTombstone adds a tombstone for ms, in the place of an older one of the same id. There are 32
-- at most, so that everyone's work is bounded: then the one that ends first makes room.
local function addTombstone(tombs, who, ms)
  local first = 1
  for i = #tombs, 1, -1 do
    if tombs[i].id == who then table.remove(tombs, i) end
  end
  for i, tomb in ipairs(tombs) do
    if tomb.ends < tombs[first].ends then first = i end
  end
  if #tombs >= 32 then table.remove(tombs, first) end
  tombs[#tombs + 1] = {ends = now + 1 + ms, id = who}
  tombs.ends = math.max(tombs.ends, now + 1 + ms)
end
