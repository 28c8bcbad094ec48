-- INSPECT, as in inspect.lua. A peer's lock has no token.
if not o then return {OK, f, {}, {}} end
local left = redis.call('PTTL', K)
if left < 0 then left = LAST end
return {OK, f, {{o, 'x', o == ours and f - count + 1 or 0, left, o == ours and meta or ''}}, {}}
