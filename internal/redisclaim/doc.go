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
//	f  the last fencing token granted: max(f+1, server time in µs)
//	z  tombstones, "until id;" up to 32 times: acquisitions that were released while an attempt may be under way
//
// One exclusive holder alone, the common case, is
//
//	o  owner, escaped; absent while nobody holds
//	x  when the lease ends, ms since 1970 by the server's clock; a hold is over when x <= now
//	m  the holder's Meta as JSON; decides nothing
//	b  the first of the tokens that it reserved, if they are more than f
//
// and several who hold together (readers, permits, holds of a re-entrant owner), and those who wait, are
//
//	g       counters of both, see common/change.lua; absent while there are neither
//	k:<n>   the n-th of those who hold, without gaps: end of its lease, token, owner, id, Meta
//	h:<id>  its n
//	q:<n>   a place in line, in the order of n: its end, what it asks for, whom to tell, id, owner, Meta
//	w:<id>  its n
//
// So whatever one claim does is a fixed number of fields, however many hold or wait. Passing over the dead is bounded: at
// most 128 of them in one script.
//
// x and the ends decide, not the key's own expiry, which only collects garbage: the token counter and the tombstones must
// outlive the hold. After the last hold the key lives for max(2·TTL, retention), and longer if its counter ran ahead of the
// clock.
//
// # Why it is safe
//
// Scripts run one at a time. A hold is written in two places only: at the end of fast/acquire.lua, if there is no owner, no
// group and no line, and in admit, behind fits, which counts everybody whose lease may be running. So the leases of two who
// exclude each other never overlap on the server. Every other script compares the id in the same run that changes
// something. All checks come before the first write, and no command after it can fail in a way that makes the reply untrue:
// Lua in Redis does not roll back.
//
// A release hands the key to the head of the line in the same run, and tells its client on the client's own channel, with
// token and lease. The message is only a hint to ask, or a grant that its token proves; a lost one costs time.
//
// Works on Redis 6 and later (7 is tested), and on servers that speak its Lua.
package redisclaim
