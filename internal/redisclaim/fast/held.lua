-- The short way of a plain exclusive claim to a lock that another holds, alone: it is refused, and takes a place at the end of
-- the line if it wants one. Neither lets anybody in, so what has run out in the line can wait for the next script.
--
-- The place is written first in the sense that counts: from the short form to the long one, SET is refused when out of memory,
-- before anything is changed; in the long form HSET is.
if ARGV[4] == 'x' then
  local f, o, x, m, g, h
  local t = redis.call('TIME')
  local now = math.floor((t[1] * 1000000 + t[2]) / 1000)
  if type(s) == 'string' then
    local counter, margin, who, count, meta = string.match(s, '^h2 (%d+) (%d+) ([^ ]+) (%d+) (.*)$')
    if who and who ~= id and #counter == 16 and #margin < 16 and #count < 5 then
      f, o, x, m, g = counter, who, now + redis.call('PTTL', K) - margin, meta, '- 0 0 0 0 0 0 1 0 0 0'
      h = {'v', 'h2', 'f', f, 'o', o, 'x', string.format('%.0f', x), 'm', m, 'b', count}
    end
  elseif s then
    local r = redis.pcall('HMGET', K, 'v', 'o', 'x', 'f', 'm', 'z', 'g', 'w:' .. id)
    if r[1] == 'h2' and r[2] and r[2] ~= '' and r[2] ~= id and not r[6] and r[7] and not r[8] and r[4] and #r[4] == 16 and
      r[3] and #r[3] == 13 and not string.find(r[3] .. r[4], '%D') then
      f, o, x, m, g = r[4], r[2], tonumber(r[3]), r[5] or '', r[7]
    end
  end
  local mx, qh, qt, qn
  if o and x > now then mx, qh, qt, qn = string.match(g, '^%- 0 0 0 0 0 (%d+) (%d+) (%d+) (%d+) 0$') end
  if qn and #mx < 16 and #qh < 14 and #qt < 14 and #qn < 14 then
    mx, qh, qt, qn = tonumber(mx), tonumber(qh), tonumber(qt), tonumber(qn)
    if ARGV[5] == '' then
      if qn == 0 then return {HELD, x - now, m, 0, tonumber(f)} end -- in line the head's place may end sooner
    elseif not string.find(s.err or '', '^%-?OOM') then
      local linger, rest = string.match(ARGV[5], '^(%d+) (.*)$')
      local ends = now + 1 + linger
      qt, qn = qt + 1, qn + 1
      -- mx is set a second further than need be, so that most places do not touch the key's expiry.
      local ahead = ends > mx or x > mx
      if ahead then mx = math.max(ends, x) + 1000 end
      h = h or {}
    end
  end
end
