-- The grant: which tokens the last hold of a lock has, read from the lock in any of its forms. It
-- is for scripts that only ask whose turn it is. No clock is in it: as long as a lock names a hold,
-- no other was granted since, whether the lease still runs or not.

-- grant returns the first and the last token, or nothing if the last hold was released or
-- forgotten, or is not exclusive. beside is the side key of the string dialect.
local function grant(key, beside)
  local stored = redis.pcall('GET', key)
  if not stored then return end
  if beside then
    local side = redis.pcall('GET', beside)
    side = type(side) == 'string' and side or ''
    local counter, count, owner = string.match(side, '^h2 (%d+) (%d+) ([^ ]*) ')
    if counter and owner == stored then return counter - count + 1, counter + 0 end
    return
  end
  if type(stored) == 'string' then
    local counter, _, _, count = string.match(stored, IS_HELD)
    if counter then return counter - count + 1, counter + 0 end
    return
  end
  local fields = redis.pcall('HMGET', key, 'v', 'o', 'f', 'b', 'g', 'k:1')
  if fields.err or fields[1] ~= 'h2' then return end
  if fields[2] then
    -- A damaged counter is no grant.
    local counter, count = string.match(fields[3] or '', '^%d+$'), string.match(fields[4] or '1', '^%d+$')
    if counter and count then return counter - count + 1, counter + 0 end
    return -- damaged
  end
  -- All holds of a re-entrant owner have one token. Others who hold together are no exclusive hold.
  local token = fields[5] and string.find(fields[5], '^r ') and string.match(fields[6] or '', '^%d+ (%d+) ')
  if token then return token + 0, token + 0 end
end
