// Package script is what a claim is in Redis: the scripts that take, extend and drop it, their
// arguments, their replies, the names of keys and channels, and what the server's errors mean. Both
// Redis backends are made of it, so that they agree to the byte; it imports no client.
//
// # Layout v2
//
// One lock is one key, prefix{esc(key)}, and nothing else: it is served through every slot
// migration, and there is no second key that can be lost on its own. The braces make all of the key
// one hash tag. What holders leave for later ones is beside it, in keys that no hold depends on:
// prefix{esc(key)}:state, prefix{esc(key)}:ran and prefix{esc(key)}:early, see lib/state.lua.
//
// A lock that is free, or that one exclusive claim holds while nobody waits, is a STRING:
//
//	h2 <counter>                                 free; counter is the last fencing token granted
//	h2 <counter> <margin> <id> <count> <meta>    held: by id, with the count tokens up to counter
//
// The key outlives the lease by margin ms, so the lease ends when PTTL is margin; meta is the
// holder's Meta as JSON, and decides nothing; a blank behind it is the mark of somebody who
// watches, for whom the release publishes. So taking is GET and SET, releasing GET and SET, and
// renewing one PEXPIRE; and a client that knows the whole value compares and sets it without a
// script, see package redis.
//
// Everything else is a HASH, until it is that simple again:
//
//	v  "h2", the version of this layout; a HASH without it is not ours
//	f  the last fencing token granted: max(f+1, server time in µs)
//	z  tombstones, "until id;" up to 32 times: claims that were released while an attempt of them
//	   may be in flight
//
//	o  owner of one exclusive hold, escaped; absent while there is none
//	x  when its lease ends, ms since 1970 by the server's clock; it is over when x <= now
//	m  its Meta
//	b  how many tokens it has, those up to f
//
//	g       the group: counters of several who hold together (readers, permits, holds of a
//	        re-entrant owner) and of those who wait, see lib/group.lua; absent while there are
//	        neither
//	k:<n>   the n-th of those who hold, without gaps: end of its lease, token, owner, id, Meta;
//	        behind the token its weight, where that is above 1
//	h:<id>  its n
//	q:<n>   a place in the queue, in the order of n: its end, whom to tell, what it asks for, id,
//	        Meta
//	w:<id>  its n
//
// So whatever one claim does is a fixed number of fields, however many hold or wait. Passing over
// places that lapsed is bounded: at most 128 of them in one script.
//
// The end of a lease decides, not that of the key: the token counter and the tombstones must
// outlive the hold. After the last hold the key lives for max(TTL/2, retention), and longer if its
// counter ran ahead of the clock.
//
// # Files
//
// Each verb is one file: acquire.lua, renew.lua, release.lua, heartbeat.lua, inspect.lua;
// dialect.lua has those of the string dialect; probe.lua finds out what a user may do. A line "--
// uses: …" stands for the libraries of lib/ that it names. golden/ has the scripts as they run.
//
// A verb begins with its short ways, for what is most often so, before the libraries of the long
// way: they cost a few commands and no more. Only lib/short.lua knows how the STRING is written,
// and for clients short.go; a test holds the two to the same. The long way knows all cases. It
// loads the lock, changes it in memory, and writes once, at its end. Both ways answer alike.
// inspect.lua reads several locks at once and changes nothing, so it tells what is stored, and
// [Layout.DecodeInspect] makes sense of it: the client has the time.
//
// # Why it is safe
//
// Scripts run one at a time. A hold is written in three places only: in short of acquire.lua, where
// the string says that the lock is free; in hand_over of release.lua, where it takes the place of
// the one that ends in the same step; and in admit of lib/holders.lua, behind fits, which counts
// everybody whose lease may be running. So the leases of two who exclude each other never overlap
// on the server. Every other script compares the id in the same run that changes something. All
// checks come before the first write, and no command after it can fail in a way that makes the
// reply untrue: Lua in Redis does not roll back.
//
// A release hands the key to the head of the queue in the same run, and tells its client on the
// client's own channel, with token and lease. The message is only a hint to ask, or a grant that
// its token proves; a lost one costs time.
//
// Works on Redis 6.0 and later and on Valkey 8 and later, and on servers that speak their Lua.
package script
