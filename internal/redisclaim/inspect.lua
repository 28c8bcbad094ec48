-- INSPECT() -> {OK, owner or '', remaining ms, token, meta} | {FOREIGN, why}
-- Reads only. It tells what was true at this instant, and proves nothing to anybody.
if o and x > now then return {OK, o, x - now, f, m or ''} end
return {OK, '', 0, f, ''}
