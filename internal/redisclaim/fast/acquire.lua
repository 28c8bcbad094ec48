-- The short way for a lock in its short form: one exclusive claim, one token. Everything else goes the long way below.
if ARGV[5] == 'x' and ARGV[7] == '1' and ARGV[11] == '0' then
  if not s or (#s == 19 and string.find(s, '^h2 %d+$')) then
    -- Free, and nobody stands in line, so nobody is overtaken. The token is the server's time in µs if that is above the
    -- counter, as it is unless the clock went back or the counter was pushed. (16 digits each: their order is the numbers'.)
    local t = redis.call('TIME')
    local token = string.format('%s%06d', t[1], t[2])
    if #token == 16 and (not s or string.sub(s, 4) < token) then
      -- The only write, and one command: either all of the grant is stored or none. All checks are behind us. One ms more:
      -- now is rounded down, and a lease may be longer than asked but never shorter.
      local r = redis.pcall('SET', K, 'h2 ' .. token .. ' ' .. ARGV[3] .. ' ' .. id .. ' - ' .. ARGV[4],
        'PX', ARGV[2] + ARGV[3] + 1)
      if r.err then return r end
      return tonumber(token)
    end
  elseif ARGV[9] == '0' and type(s) == 'string' then
    local f, margin, who, meta = string.match(s, '^h2 (%d+) (%d+) ([^ ]+) [^ ]+ (.*)$')
    if who and who ~= id and #f == 16 then
      -- Someone else's lease has not run out. Whole ms, so at least 1 remains: never 0, which means "unknown".
      local left = redis.call('PTTL', K) - margin
      if left > 0 then return {HELD, left, meta, 0, tonumber(f)} end
    end
  end
end
