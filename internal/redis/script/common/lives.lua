-- lives is the key's expiry in ms, of the short form. It is read before the clock: if the server stands still in between, a lease seems
-- to end later than it does, never sooner.
local lives = type(s) == 'string' and redis.call('PTTL', K) or -1
