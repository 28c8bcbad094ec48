-- RELEASEALL(keep, then of each claim: id, tombstone; and at the end the guard's rule, if there is one)
--   -> {OK, of each claim OK | EXPIRED | LOST} | {FOREIGN, why}
-- Claims of one lock that leave nothing for later holders, each released as by RELEASE. They are gone
-- before anybody is let in: so none of them is, on the way of the others, and nobody is told so.
local margin, mark = ARGV[1], KEYS[2]
local last, rule = mark and #ARGV - 1 or #ARGV, mark and ARGV[#ARGV]
local key, id = KEYS[1], ''
-- uses: lib/short
local OK, LOST, FOREIGN, EXPIRED, QUARANTINE, UNFIT = 1, 3, 4, 5, 7, 8
-- uses: lib/guard
local refusal, closed
if guard then refusal, closed = guard() end
if refusal and refusal[1] ~= UNFIT then return refusal end
local stored = redis.pcall('GET', key)
-- uses: lib/clock lib/group lib/run lib/tombstones lib/lock lib/state lib/holders lib/queue lib/forget

-- gather reads in two commands what forget looks at: places, holds, and the last holds, which drop moves.
local function gather()
  local fields, found, holds = {}, {}, 0
  for i = 2, last, 2 do
    fields[#fields + 1] = 'h:' .. ARGV[i]
    fields[#fields + 1] = 'w:' .. ARGV[i]
  end
  load(unpack(fields))
  for i, field in ipairs(fields) do
    local holds_it, number = i % 2 == 1, cache[field]
    if number then found[#found + 1] = (holds_it and 'k:' or 'q:') .. number end
    if number and holds_it then
      found[#found + 1] = 'k:' .. text(lock.holders - holds)
      holds = holds + 1
    end
  end
  fetch(found)
end

local function all()
  gather()
  local reply, any = {OK}, false
  for i = 2, last, 2 do
    local code, gone
    id = ARGV[i]
    code, gone = forget()
    reply[#reply + 1], any = code, any or gone -- safeguard: releaseall-any
    if ARGV[i + 1] ~= '0' then bar(ARGV[i + 1]) end -- safeguard: releaseall-tombstone
  end
  advance() -- safeguard: releaseall-admits
  if any then rouse() else primary() end -- safeguard: releaseall-replica
  return commit(tonumber(margin), true, reply)
end
return answer(all)
