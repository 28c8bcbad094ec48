package main

// The defects. Tests is as narrow as the claim: the named tests are the ones that guard the line.
var mutants = []mutant{
	// Package locker: the deadline.
	{
		"deadline counted from the reply", "locker/acquire.go",
		"deadlineOf(sent, max(g.TTL", "deadlineOf(a.core.now(), max(g.TTL", "./locker", "Deadline|Suspend",
	},
	{
		"renewed deadline counted from the reply", "locker/tenure.go",
		"deadlineOf(sent, t.claim.TTL)", "deadlineOf(t.c.now(), t.claim.TTL)", "./locker", "Deadline",
	},
	{
		"no allowance for drift", "locker/deadline.go",
		"ttl - ttl/driftRate - margin", "ttl", "./locker", "Deadline",
	},
	{
		"suspended time does not count", "locker/deadline.go",
		"slept > napless", "slept > 1<<62", "./locker", "Suspend",
	},
	{
		"a grant that comes late is believed", "locker/acquire.go",
		"case a.core.remaining(l.until) < a.claim.TTL/2:", "case false:", "./locker", "TooLate",
	},

	// Package locker: the keeper.
	{
		"no answer to a renewal is a loss", "locker/tenure.go",
		"refuted := errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrForeign)", "refuted := err != nil", "./locker", "Renewal",
	},
	{
		"a late yes revives", "locker/tenure.go",
		"if t.c.remaining(t.until) <= 0 {\n\t\t// Too", "if false {\n\t\t// Too", "./locker", "Late",
	},
	{
		"a definite loss waits for the deadline", "locker/tenure.go",
		"if refuted {", "if false {", "./locker", "Definite",
	},
	{
		"renewals stop after a failed one", "locker/tenure.go",
		"t.setRenewal(t.retry.Next())", "_ = t.retry.Next()", "./locker", "Renewal",
	},
	{
		"a dropped guard is renewed for ever", "locker/keeper.go",
		"k.weakly.Value() == nil", "false", "./locker", "Dropped",
	},
	{
		"release does not wait for the renewal", "locker/keeper.go",
		"k.turn <- struct{}{} // a renewal that was under way has been told to stop, and has; none begins after, as the hold is over\n\t<-k.turn", "", "./locker", "Joined",
	},
	{
		"MaxHold is ignored", "locker/keeper.go",
		"if d := c.cfg.MaxHold; d > 0 {", "if d := c.cfg.MaxHold; d < 0 {", "./locker", "MaxHold",
	},

	// Package locker: giving back.
	{
		"release on the caller's ctx", "locker/release.go",
		"context.WithTimeout(detached{c.life.detach, ctx}, budget)", "context.WithTimeout(ctx, budget)", "./locker", "Unlock",
	},
	{
		"a granted claim without answer is forgotten", "locker/release.go",
		"if !a.asked || !a.unsure && !a.claim.Queue {", "if true {", "./locker", "Withdrawn",
	},
	{
		"no tombstone for a claim without answer", "locker/release.go",
		"claim.Settled = !a.unsure", "claim.Settled = true", "./locker", "Withdrawn",
	},
	{
		"a release without answer is not repeated", "locker/release.go",
		"if !sleep(ctx, retry.Next()) {", "if !sleep(ctx, retry.Next()) || true {", "./locker", "Unlock",
	},
	{
		"a repeated release reports our own as lost", "locker/release.go",
		"errors.Is(err, backend.ErrLost) && unanswered", "errors.Is(err, backend.ErrLost) && false", "./locker", "Unlock",
	},
	{
		"a grant after the cancellation is kept", "locker/acquire.go",
		"case ctx.Err() != nil: // granted", "case false: // granted", "./locker", "Raced",
	},
	{
		"Close leaves guards alone", "locker/locker.go",
		"k.finish(lostBecause(ErrClosed))", "error(nil)", "./locker", "Close",
	},

	// Package locker: waiting.
	{
		"no question after subscribing", "locker/acquire.go",
		"if !subscribed && a.asked {", "if a.asked || !subscribed {", "./locker", "Subscribing",
	},
	{
		"no fallback for a lost wake-up", "locker/acquire.go",
		"pause = waiting.Jitter(a.core.cfg.Wait.Fallback)", "pause = 1 << 50", "./locker", "LostWakeUp",
	},
	{
		"the end of the blocking lease is slept over", "locker/acquire.go",
		"held.RetryAfter > 0 {", "held.RetryAfter < 0 {", "./locker", "BlockingLease",
	},
	{
		"an answer is taken for silence", "locker/acquire.go",
		"a.silent, a.last = time.Time{}, err", "a.last = err", "./locker", "Silence",
	},

	// Package locker: hand-off, and the local line.
	{
		"a hand-over of an earlier grant is believed", "locker/acquire.go",
		"g.Token <= a.atToken ||", "", "./locker", "HandOver",
	},
	{
		"a hand-over counts from the message", "locker/acquire.go",
		"until := deadlineOf(a.inLine,", "until := deadlineOf(a.core.now(),", "./locker", "HandOver",
	},
	{
		"a place in line is not given up", "locker/release.go",
		"!a.unsure && !a.claim.Queue {", "!a.unsure {", "./locker", "LeavesTheLine",
	},
	{
		"a cancelled local waiter keeps the lease", "locker/crew.go",
		"if given && o.err == nil {", "if given && o.err != nil {", "./locker", "Turn",
	},
	{
		"a lease that the store called gone is handed on", "locker/tenure.go",
		"t.refuted = t.refuted || refuted", "", "./locker", "Refuted",
	},
	{
		"a lease that is handed on late is not renewed", "locker/tenure.go",
		"if !t.due && !t.over {", "if false {", "./locker", "TestSlowHandOver|TestRenewalDuringUnlock",
	},
	{
		"the next holder is not told that the lease is over", "locker/tenure.go",
		"dead := t.dead", "dead := error(nil)", "./locker", "TestSlowHandOver",
	},
	{
		"a context that is looked at late does not end", "locker/context.go",
		"if cause != nil {\n\t\tcancel(cause)", "if false {\n\t\tcancel(cause)", "./locker", "Context",
	},
	{
		"a context that is looked at late ends with the wrong cause", "locker/keeper.go",
		"if k.parent.Err() != nil {", "if false {", "./locker", "Context",
	},
	{
		"a lease is handed on without end", "locker/crew.go",
		"t.passes >= c.cfg.Wait.Passes || now.at.Sub(t.since) >= c.cfg.Wait.PassTime ||", "", "./locker", "Bound",
	},
	{
		"a lease that is nearly over is handed on", "locker/crew.go",
		"left < min(t.claim.TTL/2, c.cfg.Wait.Fallback)", "left < 0", "./locker", "ShortLease",
	},
	{
		"handed on with the token of the one before", "locker/crew.go",
		"t.token++", "", "./locker", "OwnTokens",
	},
	{
		"locking again under the guard waits for itself", "locker/acquire.go",
		"op != opTry && !claim.Reentrant && holds(", "false && holds(", "./locker", "WouldDeadlock",
	},
	{
		"a wait in vain is waited", "locker/pace.go",
		"if vain.RetryAfter <= vain.Left {", "if true {", "./locker", "FailFast",
	},
	{
		"an old estimate is believed for ever", "locker/pace.go",
		"now.Sub(s.seen) > max(paceMemory, 4*s.hold)", "false", "./locker", "FailFast|Pace",
	},
	{
		"those ahead in the local line take no time", "locker/pace.go",
		"h.Position = max(h.Position, 1) + ahead", "h.Position = max(h.Position, 1)", "./locker", "FailFast",
	},
	{
		"All locks in the caller's order", "locker/all.go",
		"slices.Compact(slices.Sorted(slices.Values(keys)))", "keys", "./locker", "All",
	},
	{
		"All keeps what it has when it fails", "locker/all.go",
		"errors.Join(err, all.Unlock())", "err", "./locker", "AllOrNothing",
	},

	// What all backends share for waiting.
	{
		"line: two of one process ask", "waiting/line.go",
		"if c.asking {", "if false {", "./waiting", "Line",
	},
	{
		"line: who leaves may be given something as well", "waiting/line.go",
		"if !p.waits {", "if false {", "./waiting", "Leave|Storm",
	},
	{
		"line: last come, first served", "waiting/line.go",
		"	c.unlink(p)\n	c.note", "	p = c.last\n	c.unlink(p)\n	c.note", "./waiting", "Order",
	},
	{
		"the hub blocks on a full slot", "waiting/hub.go",
		"default: // a signal already waits", "case <-make(chan struct{}): // a signal already waits", "./waiting", ".",
	},

	// The reference backend, by the conformance suite.
	{
		"mem: anybody may release", "internal/memstore/lock.go",
		"func(h hold) bool { return h.id == id })", "func(hold) bool { return true })", "./backend/membackend", ".",
	},
	{
		"mem: no tombstone", "internal/memstore/store.go",
		"if !c.Settled {", "if false {", "./backend/membackend", ".",
	},
	{
		"mem: renewal shortens", "internal/memstore/store.go",
		"h.expires = later(h.expires, now.Add(c.TTL))\n\tif c.Floor", "h.expires = now.Add(c.TTL)\n\tif c.Floor", "./backend/membackend", ".",
	},
	{
		"mem: a repeat is a new grant", "internal/memstore/store.go",
		"h != nil { // a repeat", "h != nil && false { // a repeat", "./backend/membackend", ".",
	},
	{
		"mem: token from the clock alone", "internal/memstore/store.go",
		"max(s.token+1, uint64(now.UnixMicro()), ", "max(uint64(now.UnixMicro()), ", "./backend/membackend", ".",
	},
	{
		"mem: release without a wake-up", "internal/memstore/store.go",
		"s.hub.Wake(keyTopic(c.Key), backend.Wake{})", "", "./backend/membackend", ".",
	},
	{
		"mem: who does not stand in line overtakes", "internal/memstore/store.go",
		"len(l.line) == 0 && l.fits(c)", "l.fits(c)", "./backend/membackend", ".",
	},
	{
		"mem: a cancelled claim stays in line", "internal/memstore/store.go",
		"l.drop(c.ID()), l.leave(c.ID())", "l.drop(c.ID()), false", "./backend/membackend", ".",
	},

	{
		"mem: no quarantine", "internal/memstore/store.go",
		"if !now.Before(s.opens) {", "if true {", "./backend/membackend", "Quarantine",
	},
	{
		"mem: a floor is not written back", "internal/memstore/store.go",
		"if c.Floor > h.token {", "if false {", "./backend/membackend", ".",
	},

	// The Lua, on a real Redis.
	{
		"lua: anybody may release", "internal/redisclaim/fast/release.lua",
		"if who == id then", "if who then", "./redisbackend", "Conformance",
	},
	{
		"lua: a server that forgot goes on granting", "internal/redisclaim/common/guard.lua",
		"if rest > 0 then closed = {rest, why} end", "", "./internal/redisclaim", "Guard",
	},
	{
		"lua: a promotion goes unnoticed", "internal/redisclaim/common/guard.lua",
		"elseif known ~= life then", "elseif false then", "./internal/redisclaim", "Guard",
	},
	{
		"lua: a flush goes unnoticed", "internal/redisclaim/common/guard.lua",
		"since, why = now, 'new or flushed'", "since, why = 0, 'new or flushed'", "./internal/redisclaim", "Guard",
	},
	{
		"lua: a release lets somebody in at a server that forgot", "internal/redisclaim/common/holders.lua",
		"if closed then return false end", "", "./internal/redisclaim", "Guard",
	},
	{
		"lua: dialect: anybody may release", "internal/redisclaim/dialect/release.lua",
		"if o == id then r", "if o then r", "./internal/redisclaim", "Dialect",
	},
	{
		"lua: dialect: a late attempt is granted", "internal/redisclaim/dialect/acquire.lua",
		"if buried() then return {LOST} end", "", "./internal/redisclaim", "Dialect",
	},
	{
		"lua: anybody may hand over", "internal/redisclaim/fast/hand.lua",
		"and h[2] == id and", "and h[2] and", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a lapsed place is handed the lock", "internal/redisclaim/fast/hand.lua",
		"tonumber(ends) > now and", "", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a grant that is handed over has an old token", "internal/redisclaim/fast/hand.lua",
		"math.max(h[4] + 1, us)", "us - 1000000", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a short lease is not handed over as one", "internal/redisclaim/fast/hand.lua",
		"lease + keep + 1))", "keep + 1))", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a place behind a lease that ran out", "internal/redisclaim/fast/stand.lua",
		"o ~= id and x > now and", "o ~= id and", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a second place", "internal/redisclaim/fast/stand.lua",
		"and h[7] and not h[8] then", "and h[7] then", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: the first in line frees the lock", "internal/redisclaim/fast/stand.lua",
		"'o', o, 'x', string", "'x', string", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: anybody may release where others wait", "internal/redisclaim/release.lua",
		"if o == id then", "if o then", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: no tombstone is left", "internal/redisclaim/release.lua",
		"if tomb > 0 then bury(tomb) end", "", "./redisbackend", "Conformance",
	},
	{
		"lua: tombstones are not looked at", "internal/redisclaim/acquire.lua",
		"if buried() then return {LOST} end", "", "./redisbackend", "Conformance",
	},
	{
		"lua: a repeat is refused", "internal/redisclaim/acquire.lua",
		"if token then return commit", "if false then return commit", "./redisbackend", "Conformance",
	},
	{
		"lua: renewal revives", "internal/redisclaim/fast/renew.lua",
		"if left > 0 then", "if true then", "./redisbackend", "Conformance",
	},
	{
		"lua: renewal shortens", "internal/redisclaim/fast/renew.lua",
		"if left > ARGV[2] + 1 then return OK end", "", "./redisbackend", "Conformance",
	},
	{
		"lua: anybody may renew", "internal/redisclaim/fast/renew.lua",
		"if who == id then", "if who then", "./redisbackend", "Conformance",
	},
	{
		"lua: token from the clock alone", "internal/redisclaim/fast/acquire.lua",
		"math.max(f + 1, us)", "us", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: token from the counter alone", "internal/redisclaim/fast/acquire.lua",
		"math.max(f + 1, us)", "f + 1", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: release without a wake-up", "internal/redisclaim/fast/release.lua",
		"redis.pcall('PUBLISH', ARGV[4], 'free')", "", "./redisbackend", "Conformance",
	},
	{
		"lua: foreign hashes are taken for locks", "internal/redisclaim/common/head.lua",
		"if h[1] ~= 'h2' then", "if h[1] and h[1] ~= 'h2' then", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: the line is overtaken", "internal/redisclaim/acquire.lua",
		"if fits(c) and (qn == 0 or gm == 'r') then", "if fits(c) then", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a repeat takes another place", "internal/redisclaim/acquire.lua",
		"  if keeps then", "  if false then", "./internal/redisclaim", ".",
	},
	{
		"lua: who is cancelled stays in line", "internal/redisclaim/release.lua",
		"  strike(seq, at)", "", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a lapsed place is let in", "internal/redisclaim/common/line.lua",
		"elseif e.ends <= now then", "elseif false then", "./internal/redisclaim", ".",
	},
	{
		"lua: a release hands nothing over", "internal/redisclaim/release.lua",
		"\nadv()\n", "\n", "./internal/redisclaim", ".",
	},
	{
		"lua: a permit too many", "internal/redisclaim/common/holders.lua",
		"return gn < gl and", "return gn <= gl and", "./internal/redisclaim", ".",
	},
	{
		"lua: two limits of one semaphore", "internal/redisclaim/acquire.lua",
		"and gl ~= c.limit and not seq", "and false and not seq", "./internal/redisclaim", ".",
	},
	{
		"lua: holders whose lease ran out stay", "internal/redisclaim/common/holders.lua",
		"if e.ends > now then ga = math.min(ga, e.ends) else drop(n, e) end", "ga = math.min(ga, e.ends)", "./internal/redisclaim", ".",
	},
	{
		"lua: running leases are dropped with those that ran out", "internal/redisclaim/common/holders.lua",
		"if e.ends > now then ga = math.min(ga, e.ends) else drop(n, e) end", "drop(n, e)", "./internal/redisclaim", ".",
	},
	{
		"lua: one script does everything", "internal/redisclaim/common/change.lua",
		"local STEPS, more = 128, false", "local STEPS, more = 4000, false", "./internal/redisclaim", ".",
	},
	{
		"lua: a grant that is handed over is not told", "internal/redisclaim/common/commit.lua",
		"redis.pcall('PUBLISH', base", "text(0, base", "./redisbackend", "HandOff|OneChannel",
	},

	// The go-redis backend.
	{
		"redis: watch returns before the confirmation", "redisbackend/watch.go",
		"err = s.await(ctx, state)", "_ = state", "./redisbackend", ".",
	},
	{
		"redis: no wake-up after a reconnect", "redisbackend/watch.go",
		"s.hub.Wake(name, backend.Wake{}) // first", "_ = backend.Wake{} // first", "./redisbackend", ".",
	},
	{
		"redis: a request waits for the store, not for ctx", "redisbackend/call.go",
		"case <-bounded.Done():", "case <-make(chan struct{}):", "./redisbackend", ".",
	},
	{
		"redis: no wake-up of those in line after a reconnect", "redisbackend/watch.go",
		"s.line.WakeAll(backend.Wake{})", "_ = backend.Wake{}", "./redisbackend", ".",
	},
	{
		"redis: an older signal hides a grant", "redisbackend/watch.go",
		"s.line.Deliver(topic, w)", "s.line.Wake(topic, w)", "./redisbackend", "Newest",
	},
	{
		"redis: an evicting server is taken", "redisbackend/check.go",
		"if b.cfg.AllowEviction", "if true || b.cfg.AllowEviction", "./redisbackend", ".",
	},
}
