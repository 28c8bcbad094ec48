return redis.pcall('GET', KEYS[1]) or ''
