-- The short way of a release that hands the lock over: a plain exclusive hold, no attempt of it under way, and a plain
-- exclusive claim at the head of the line that is alive. The id is compared, the hold ended and the next one granted in one
-- step, so the lock is never free in between and nobody overtakes. If the first write is refused (out of memory), nothing
-- was changed, and the long way frees all the same.
if settled and type(s) == 'table' and not closed then
  local h = redis.pcall('HMGET', K, 'v', 'o', 'x', 'f', 'z', 'g')
  local mx, qh, qt, qn
  if h[1] == 'h2' and h[2] == id and h[3] and h[4] and not string.find(h[3] .. h[4], '%D') and not h[5] and h[6] then
    mx, qh, qt, qn = string.match(h[6], '^%- 0 0 0 0 0 (%d+) (%d+) (%d+) (%d+) 0$')
  end
  local head = qn and redis.call('HGET', K, 'q:' .. qh)
  if head then
    local t = redis.call('TIME')
    local us = t[1] * 1000000 + t[2]
    local now = math.floor(us / 1000)
    local ends, lease, client, tail, keep, who, count =
      string.match(head, '^(%d+) (%d+) ([^ ]*) x ((%d+) ([^ ]+) (%d+) .*)$')
    mx, qh, qt, qn = tonumber(mx), tonumber(qh), tonumber(qt), tonumber(qn)
    local token = math.max(h[4] + 1, us)
    local top = ends and token + count - 1
    if ends and tonumber(ends) > now and top <= us + 10000 and qt < 1e13 and qn <= qt - qh + 1 then
      local meta, r = string.match(tail, '^%d+ [^ ]+ %d+ (.*)$')
      if qn == 1 then -- nobody waits any more
        r = redis.pcall('SET', K, string.format('h2 %.0f %s', top, tail), 'PX', string.format('%.0f', lease + keep + 1))
      else
        local x = now + 1 + lease
        local more = x > mx
        if more then mx = x + 1000 end
        r = redis.pcall('HSET', K, 'o', who, 'x', string.format('%.0f', x), 'f', string.format('%.0f', top), 'b', count, 'm', meta,
          'g', string.format('- 0 0 0 0 0 %.0f %.0f %.0f %.0f 0', mx, qh + 1, qt, qn - 1))
        if type(r) == 'number' then
          redis.pcall('HDEL', K, string.format('q:%.0f', qh), 'w:' .. who)
          if more and redis.call('PTTL', K) < mx - now + keep then
            redis.pcall('PEXPIRE', K, string.format('%.0f', mx - now + keep))
          end
        end
      end
      if type(r) ~= 'table' or not r.err then
        if client ~= '' then -- after the change; a message is a hint, or a grant that its token proves
          redis.pcall('PUBLISH', string.match(K, '^[^{]*') .. '@' .. client,
            string.format('%.0f %s %s %s %s', token, count, lease, who, K))
        end
        if tonumber(h[3]) > now then return OK end
        return EXPIRED
      end
    end
  end
end
