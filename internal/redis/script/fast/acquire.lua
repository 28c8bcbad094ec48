-- The short way of a plain exclusive claim to a lock in its short form. Whatever is not as it is most often goes the long way
-- below, which knows all cases and says the same in these.
if plain and (not s or type(s) == 'string') then
  local f = s and tonumber(string.match(s, '^h2 (%d+)$')) or not s and 0
  if f then
    -- Free, and nobody stands in line, so nobody is overtaken. The token is above every earlier one: by the counter while the
    -- key lives, by the clock after it is gone; those that are reserved follow it. A wish for a higher one goes a quarter of
    -- the TTL beyond the clock at most, and the key outlives any lease for longer than that. Without a wish tokens stay within
    -- 10 ms of the clock, so that they rise also where all was lost but the clock; a counter further ahead is for the long way.
    local t = redis.call('TIME')
    local us = t[1] * 1000000 + t[2]
    local token, most = us, us + 10000
    if f >= us then token = f + 1 end
    if ARGV[8] and ARGV[7] ~= '0' then
      local wish = math.min(ARGV[7], us + ARGV[8])
      token, most = math.max(token, wish), math.max(us, wish) + 10000
    end
    local top = token + ARGV[5] - 1
    if top <= most then
      -- The only write, and one command: either all of the grant is stored or none. All checks are behind us.
      local r = redis.pcall('SET', K, string.format('h2 %.0f ', top) .. ARGV[3], 'PX', ARGV[2])
      if r.err then return r end
      return token
    end
  elseif ARGV[4] == '' then
    local counter, margin, who, meta = string.match(s, '^h2 (%d+) (%d+) ([^ ]+) %d+ (.*)$')
    if who and who ~= id and #counter == 16 then
      -- Someone else's lease has not run out. Whole ms, so at least 1 remains: never 0, which means "unknown".
      local left = redis.call('PTTL', K) - margin
      if left > 0 then return {HELD, left, meta, 0, tonumber(counter)} end
    end
  end
end
