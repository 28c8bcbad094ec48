// Package redisclaim is what a claim is in Redis: the scripts that take, extend and drop it, their arguments, their
// replies, the names of keys and channels, and what the server's errors mean. Both Redis backends are made of it, so that
// they agree to the byte; it imports no client.
//
// # Layout v1
//
// One lock is one HASH at prefix{esc(key)}, and nothing else: one key is served through every slot migration, and there is
// no second key that can be lost on its own. The braces make all of the key one hash tag.
//
//	v  "h1", the version of this layout; a HASH without it is not ours
//	o  owner, escaped; absent while nobody holds
//	x  when the lease ends, ms since 1970 by the server's clock; a hold is over when x <= now
//	f  the last fencing token granted: max(f+1, server time in µs)
//	m  the holder's Meta as JSON; decides nothing
//	s  when the hold began, ms by the server's clock; for people who look with HGETALL
//	z  tombstones, "until id;" up to 32 times: owners that were released while an attempt of theirs may be under way
//
// x decides, not the key's own expiry, which only collects garbage: the token counter and the tombstones must outlive the
// hold. After the last hold the key lives for max(2·TTL, retention), and longer if its counter ran ahead of the clock.
//
// # Why it is safe
//
// Scripts run one at a time. An owner is written in one place only, the end of acquire.lua, and only if there is no owner
// or its lease has run out, so the leases of two owners never overlap on the server. Every other script compares the owner
// in the same run that changes something. All checks come before the first write, and no command after it can fail in a
// way that makes the reply untrue: Lua in Redis does not roll back.
//
// Works on Redis 6 and later (7 is tested), and on servers that speak its Lua.
package redisclaim
