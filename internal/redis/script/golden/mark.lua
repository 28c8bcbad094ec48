-- MARK() -> the server's mark, empty if it has none
return redis.pcall('GET', KEYS[1]) or ''
