-- The queue. A place is q:<number>, 'ends lease client mode,limit,owner keep id reserve meta', with
-- 'x' alone for the form of a plain exclusive claim, and 'limit*weight' for the limit of a permit
-- that counts more than once, which a client that knows no weights takes for damage. lock.head and
-- lock.tail are the first and the last number, with gaps where a claim left; lock.waiting counts
-- the places, lock.permits those for permits. w:<id> is the number of an id's place, looked up
-- before it is given one: a repeat never has two.

-- read_place makes a claim of a place, or of one that is put together of a claim's arguments.
local function read_place(place)
  local ends, lease, client, form, tail, keep, who, reserve, meta =
    string.match(place, '^(%d+) (%d+) ([^ ]*) ([^ ]+) ((%d+) ([^ ]+) (%d+) (.*))$')
  local flags, mode, limit, weight, owner, job, every, awaited, stored = '', 'x', 0, 1, ''
  if form and form ~= 'x' then
    job, flags, mode, stored, owner = string.match(form, '^([!:%d]*)(%+?)([xspr]),([^,]+),(.*)$')
    every, awaited = string.match(job or '', '^!(%d+):(%d+)$')
    limit, weight = weighed(stored)
  end
  keep, reserve, ends = int(keep), int(reserve), int(ends)
  if not (keep and limit and weight and reserve and ends and int(lease)) or reserve < 1 or
    reserve > 1024 or (mode == 'p') ~= (limit > 0) or weight < 1 or weight > math.max(limit, 1) then
    damaged('queue')
  end
  return {ends = ends, lease = lease, client = client, id = who, mode = mode, limit = limit,
    weight = weight, owner = owner == '' and who or owner, reserve = reserve, meta = meta, keep = keep,
    asks = form .. ' ' .. tail, loads = flags == '+', every = int(every), awaited = int(awaited)}
end

-- find_place returns the number of the place of who, when it ends, what it asks for and in which mode.
local function find_place(who)
  local number = lock.waiting > 0 and get('w:' .. who)
  if not number then return end
  local ends, asks, mode, found =
    string.match(get('q:' .. number) or '', '^(%d+) %d+ [^ ]* (%+?([xspr])[^ ]* %d+ ([^ ]+) .*)$')
  number, ends = int(number), int(ends)
  if not (number and ends) or found ~= who or number < lock.head or number > lock.tail then
    damaged('queue')
  end
  return number, ends, asks, mode
end

local function write_place(number, ends, lease, client, asks)
  changes['q:' .. number] = text(ends) .. ' ' .. lease .. ' ' .. client .. ' ' .. asks
  outlast(ends)
end

-- leave takes the place of who out of the queue.
local function leave(number, who, mode)
  changes['q:' .. number], changes['w:' .. who] = false, false
  lock.waiting = lock.waiting - 1
  if mode == 'p' then lock.permits = lock.permits - 1 end
  if lock.waiting < 0 or lock.permits < 0 then damaged('queue') end
  if number == lock.head then lock.head = number + 1 end
  if lock.waiting == 0 then lock.head, lock.tail = 1, 0 end
end

-- advance ends what is over, and then lets the head of the queue in as long as it fits: readers
-- together, a writer alone. It stops at the first that does not fit, so nobody is overtaken.
-- Afterwards, unless more is set, nobody waits, or the head is alive and does not fit; first is the
-- first that was let in, one of so many.
--
-- Whoever is let in holds from now on, in the step that made the room, for the lease of its place
-- (at most its TTL). If it lives, it asks within that time and gets all of its TTL; if not, its
-- lease ends like any other. Leaving the queue and being let in are both steps of a script, so a
-- waiter that is cancelled has left before, or holds, and its release ends either.
--
-- It is told, unless it is asking: the message is a hint to ask, or a grant that its token proves.
-- With a line more it has the state that the claim loads; '?' says that it is to ask for that. So it
-- is where this script does not name the key of the state: if its slot is being moved to this server,
-- one that is not there may have yet to come, which a script that names it is told (TRYAGAIN).
local admitted, first = 0, nil
local function advance(asking)
  purge()
  local steps, fetched = 0, lock.head
  while lock.waiting > 0 do
    if steps == STEPS then
      more = true
      return
    end
    if lock.head > fetched then -- the first was not the last: look at the next ones together
      local fields = {}
      fetched = math.min(lock.tail, lock.head + steps)
      for number = lock.head, fetched do fields[#fields + 1] = 'q:' .. number end
      fetch(fields)
    end
    steps = steps + 1
    local place = get('q:' .. lock.head)
    local claim = place and read_place(place)
    if not claim then -- it left
      lock.head = lock.head + 1
      if lock.head > lock.tail then damaged('queue') end
    elseif claim.ends <= now then
      leave(lock.head, claim.id, claim.mode)
    elseif fits(claim) then
      leave(lock.head, claim.id, claim.mode)
      admitted, first = admitted + 1, first or claim
      local token, count = admit(claim, claim.lease)
      if claim.id ~= asking and claim.client ~= '' then
        local state = claim.loads and read_state()
        if refused(state) or (state == '-' and #KEYS == 1) then state = '?' end -- safeguard: moving-state
        messages[#messages + 1] = {string.match(key, '^[^{]*') .. '@' .. claim.client,
          text(token) .. ' ' .. count .. ' ' .. claim.lease .. ' ' .. claim.id .. ' ' .. key ..
            (state and '\n' .. state or '')}
      end
    else
      return
    end
  end
end
