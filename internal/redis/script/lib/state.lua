-- What a holder leaves beside the lock, for those who hold later: keys of its slot that outlive
-- holds.
--   <key>:state   what it saved; without an expiry
--   <key>:early   there for as long as claims that heed it ('!') are not to be granted
-- They are written by the script that proves the hold, before all else, so one that is refused (out
-- of memory) has written nothing. After a first write no other one is refused.
local saving, early_ms = false, 0 -- what this script is about to leave

-- leave_state takes what a holder leaves from the arguments: ms, and '+' with a state, or nothing.
local function leave_state(ms, state)
  early_ms = tonumber(ms)
  saving = string.sub(state, 1, 1) == '+' and string.sub(state, 2)
end

local function write_state()
  if saving then write(false, 'SET', key .. ':state', saving) end
  if early_ms > 0 then write(false, 'SET', key .. ':early', '1', 'PX', text(early_ms)) end
end

-- read_state returns '+' and the state, or '-' for none; what this script saves is the state
-- already.
local function read_state()
  local state = saving or redis.pcall('GET', key .. ':state')
  if refused(state) then return state end
  return state and '+' .. state or '-'
end
