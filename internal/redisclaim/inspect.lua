-- INSPECT() -> {OK, last token, {{owner, mode, token, remaining ms, meta}, …}, {{owner, mode, meta}, …}} | {FOREIGN, why}
-- Reads only, a hundred entries at a time. It tells what was true at this instant, and proves nothing to anybody.
local holders, line = {}, {}
if o and x > now then holders[1] = {o, 'x', (first()), x - now, m or ''} end
local function all(kind, from, to, read, show)
  for start = from, to, 100 do
    local fields = {}
    for n = start, math.min(to, start + 99) do fields[#fields + 1] = kind .. n end
    fetch(fields)
    for n = start, math.min(to, start + 99) do
      local e = read(n)
      if e and e.ends > now then show(e) end
    end
  end
end
all('k:', 1, gn, slot, function(e)
  holders[#holders + 1] = {e.owner == '' and e.id or e.owner, gm, e.token, e.ends - now, e.meta}
end)
all('q:', qh, qt, place, function(e) line[#line + 1] = {e.owner, e.mode, e.meta} end)
if broken then return {FOREIGN, broken} end
return {OK, f, holders, line}
