-- forget ends the hold of id and takes it out of the queue, whichever there is; one that was handed
-- the key and did not ask yet holds. It returns OK, EXPIRED if the lease was over, or LOST if there
-- was no hold, and whether there was anything.
local function forget()
  local code, gone = LOST, false
  local n, hold = find_hold()
  if lock.owner == id then -- safeguard: forget-owner
    code, gone = lock.expires > now and OK or EXPIRED, true
    turn(false, 0, false, false)
  elseif hold then
    code, gone = hold.ends > now and OK or EXPIRED, true
    drop(n, hold)
  end
  local number, _, _, mode = find_place(id)
  if number then
    gone = true -- safeguard: left-place-wakes
    leave(number, id, mode)
  end
  return code, gone
end

-- bar leaves a tombstone of id for ms.
local function bar(ms)
  addTombstone(lock.tombs, id, tonumber(ms))
  lock.tombstoned = true
end

-- rouse wakes those who do not wait in the queue, if one of them could be let in.
local function rouse()
  if lock.waiting == 0 and not (lock.owner and lock.expires > now) and (lock.holders == 0 or
    lock.mode == 's' or (lock.mode == 'p' and lock.weight < lock.limit)) then
    messages[#messages + 1] = {key .. ':free', 'free'}
  end
end
