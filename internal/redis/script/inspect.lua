-- INSPECT() -> {OK, last token, {{owner, mode, token, remaining ms, meta}, …}, {{owner, mode, meta}, …}} | {FOREIGN, why}
-- Reads only. It tells what was true at this instant, and proves nothing to anybody. It reads what is stored, once, and never
-- counts from one number to another: a line has gaps, and damage may have made them as long as the server would run.
local holders, numbers, line = {}, {}, {}
if long then
  local h = redis.call('HGETALL', K)
  if gn > #h / 2 then damaged('holders') end
  for i = 1, #h, 2 do
    was[h[i]] = h[i + 1]
    local seq = int(string.match(h[i], '^q:(%d+)$'))
    if seq and seq >= qh and seq <= qt then numbers[#numbers + 1] = seq end
  end
  table.sort(numbers)
end
if o and x > now then holders[1] = {o, 'x', (first()), x - now, m or ''} end
for n = 1, broken and 0 or gn do
  local e = slot(n)
  if not e then break end
  if e.ends > now then holders[#holders + 1] = {e.owner == '' and e.id or e.owner, gm, e.token, e.ends - now, e.meta} end
end
for _, seq in ipairs(numbers) do
  local e = place(seq)
  if not e then break end
  if e.ends > now then line[#line + 1] = {e.owner, e.mode, e.meta} end
end
if broken then return {FOREIGN, broken} end
return {OK, f, holders, line}
