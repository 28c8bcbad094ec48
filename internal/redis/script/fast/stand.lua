-- The short way of a plain exclusive claim into the line, while another holds alone and nobody but such claims waits. It lets
-- nobody in, as the lease runs, and whoever died in the line is passed over by the script that lets in. All checks come
-- before the first write, and that is one that Redis refuses when out of memory.
--
-- Most often the claim stands there already and says that it lives. If the head is alive too, and nobody has left from the middle,
-- there is nothing else to do: its place lasts longer, and keeps its number.
if plain and ARGV[4] ~= '' and s then
  local lives = type(s) == 'string' and redis.call('PTTL', K) -- before the clock: see common/lives.lua
  local t = redis.call('TIME')
  local us = t[1] * 1000000 + t[2]
  local now = math.floor(us / 1000)
  local f, o, x, m, b, mx, qh, qt, qn, seq, left
  if type(s) == 'string' then
    f, x, o, b, m = string.match(s, '^h2 (%d+) (%d+) ([^ ]+) (%d+) (.*)$')
    if o then
      x, mx, qh, qt, qn = now + lives - x, 0, 1, 0, 0
    end
  else
    local h = redis.pcall('HMGET', K, 'v', 'o', 'x', 'f', 'm', 'z', 'g', 'w:' .. id)
    if h[1] == 'h2' and h[2] and h[3] and h[4] and #h[3] == 13 and not string.find(h[3] .. h[4], '%D') and
      not h[6] and h[7] then
      o, x, f, m = h[2], tonumber(h[3]), h[4], h[5] or ''
      mx, qh, qt, qn = string.match(h[7], '^%- 0 0 0 0 0 (%d+) (%d+) (%d+) (%d+) 0$')
      seq = qh and h[8]
      local p = seq and redis.call('HMGET', K, 'q:' .. seq, 'q:' .. qh)
      mx, qh, qt, qn = tonumber(mx), tonumber(qh), tonumber(qt), tonumber(qn)
      if p then
        local ends, who
        ends, left, who = string.match(p[1] or '', '^(%d+) %d+ [^ ]* (x %d+ ([^ ]+) .*)$')
        local head = string.match(p[2] or '', '^%d+') or ''
        seq = tonumber(seq) or 0
        if who ~= id or #ends ~= 13 or #head ~= 13 or math.min(ends, head) <= now or qt - qh + 1 ~= qn or seq < qh or seq > qt then
          qn = nil
        end
        left = {tonumber(ends), left}
      end
    end
  end
  if qn and o ~= '' and o ~= id and x > now and #f == 16 and f - us <= 10000 and qh > 0 and qt < 1e13 and qn <= qt - qh + 1 then
    local linger, rest = string.match(ARGV[4], '^(%d+) (.*)$')
    local ends = now + 1 + linger
    local more = math.max(ends, x) > mx
    if more then mx = math.max(ends, x) + 1000 end -- a second further than need be: most places do not touch the expiry
    local at, place, r = qn + 1, nil, nil
    if left then
      at, seq = seq - qh + 1, string.format('%.0f', seq)
      place = string.format('%.0f %s %s', math.max(ends, left[1]), rest, left[2])
    else
      qt, qn = qt + 1, qn + 1
      place, seq = string.format('%.0f %s x %s', ends, rest, ARGV[3]), string.format('%.0f', qt)
    end
    local g = string.format('- 0 0 0 0 0 %.0f %.0f %.0f %.0f 0', mx, qh, qt, qn)
    if left and not more then
      r = redis.pcall('HSET', K, 'q:' .. seq, place)
    elseif lives then
      r = redis.pcall('SET', K, s, 'KEEPTTL')
      if r.err then return r end
      redis.pcall('DEL', K)
      r = redis.pcall('HSET', K, 'v', 'h2', 'f', f, 'o', o, 'x', string.format('%.0f', x), 'm', m, 'b', b, 'g', g,
        'q:' .. seq, place, 'w:' .. id, seq)
    else
      r = redis.pcall('HSET', K, 'g', g, 'q:' .. seq, place, 'w:' .. id, seq)
    end
    local refused = type(r) == 'table' and r.err
    if refused and not left then return r end
    if not refused then -- else out of memory: whoever stands there already may go on, which the long way sees to
      if more then
        local ms = mx - now + ARGV[2]
        lives = lives or redis.pcall('PTTL', K)
        redis.pcall('PEXPIRE', K, string.format('%.0f', type(lives) == 'number' and math.max(lives, ms) or ms))
      end
      return {HELD, at == 1 and x - now or 0, m, at, tonumber(f)}
    end
  end
end
