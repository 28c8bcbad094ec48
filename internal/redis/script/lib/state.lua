-- What a holder leaves beside the lock, for those who hold later: keys of its slot that outlive
-- holds.
--   <key>:state   what it saved; without an expiry
--   <key>:ran     'token began': the last run of a job that has ended, and the key's last token then. By
--                 it claims are not to be granted that heed it ('!'); it is kept for MarkLife in the contract
--   <key>:early   '2' for as long as that run's own time is: for versions before, which know no other
--                 mark and leave '1'
-- They are written by the script that proves the hold, before all else, so one that is refused (out
-- of memory) has written nothing. After a first write no other one is refused.
local saving, run_token, began, rest, keep_run = false -- what this script is about to leave

-- leave_state takes what a holder leaves from the arguments: 'every ran keep' in ms, and '+' with a
-- state, or nothing.
local function leave_state(job, state)
  local every, ran
  every, ran, keep_run = string.match(job, '^(%d+) (%d+) (%d+)$')
  if every then run_token, began, rest = lock.counter, now - ran, every - ran end
  saving = string.sub(state, 1, 1) == '+' and string.sub(state, 2)
end

local function write_state()
  if saving then write(false, 'SET', key .. ':state', saving) end
  if run_token then
    write(false, 'SET', key .. ':ran', text(run_token) .. ' ' .. text(began), 'PX', keep_run)
    redis.pcall('DEL', key .. ':early')
    if rest > 0 then redis.pcall('SET', key .. ':early', '2', 'PX', text(rest)) end
  end
end

-- too_early returns nil if a job may be granted, else for how many ms it may not, which is 0 if it has run
-- since the claim was refused first: awaited was the last token then. Tokens rise with the grants of a key:
-- so whoever held then has run the job, or a later one has.
local function too_early(every, awaited)
  local left, run_of, mark = 0, run('GET', key .. ':ran'), run('GET', key .. ':early')
  if mark == '1' then -- safeguard: own-time
    left = run('PTTL', key .. ':early')
    if left > 0 then return left end
  end
  if not run_of then return end
  local token, start = string.match(run_of, '^(%d+) (%d+)$')
  token, start = int(token), int(start)
  if not start then damaged('mark of a job') end
  left = math.max(start + every - now, 0)
  if left > 0 or awaited > 0 and token >= awaited then return left end -- safeguard: awaited
end

-- read_state returns '+' and the state, or '-' for none; what this script saves is the state
-- already.
local function read_state()
  local state = saving or redis.pcall('GET', key .. ':state')
  if refused(state) then return state end
  return state and '+' .. state or '-'
end
