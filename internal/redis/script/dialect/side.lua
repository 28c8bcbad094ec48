-- keepside writes the side key, which must outlive a lease of ms, and then the retention, and its tombstones.
local function keepside(ms, keep)
  local out = {}
  for i, tomb in ipairs(tombs) do out[i] = text(tomb[1]) .. ' ' .. tomb[2] .. ';' end
  out = table.concat(out)
  ms = math.max(ms, last - now) + keep + ahead(f)
  if side then ms = math.max(ms, redis.call('PTTL', S)) end
  return redis.pcall('SET', S, 'h2 ' .. text(f) .. ' ' .. text(count) .. ' ' .. ours .. ' ' .. #out .. ' ' .. out .. meta,
    'PX', text(ms))
end
