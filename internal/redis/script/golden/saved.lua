-- SAVED() -> '+' and the state that was saved last, or '-' for none
local state = redis.pcall('GET', KEYS[1])
return type(state) == 'table' and state or state and '+' .. state or '-'
