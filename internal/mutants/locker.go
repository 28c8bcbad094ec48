package main

// The defects in package locker.
var lockerMutants = []mutant{
	// the deadline.
	{
		"deadline counted from the reply", "locker/acquire.go",
		"deadlineOf(sent, max(g.TTL", "deadlineOf(a.core.now(), max(g.TTL", "./locker", "Deadline|Suspend",
	},
	{
		"deadline of a relay counted from the reply", "locker/acquire.go",
		"return r.grant, r.sent, r.err", "return r.grant, a.core.now(), r.err", "./locker", "Relay",
	},
	{
		"a hold that is not settled is relayed", "locker/behind.go",
		"!t.claim.NoneInFlight ||", "", "./locker", "Relay",
	},
	{
		"who rides with a release asks as well", "locker/behind.go",
		"		return r\n	case", "		return nil\n	case", "./locker", "TakesQuestion",
	},
	{
		"who is alone waits for a hold without a subscription", "locker/acquire.go",
		"		a.watch(ctx)\n	}\n	sent =", "	}\n	sent =", "./locker", "AloneWithout",
	},
	{
		"a relay without an answer is forgotten", "locker/behind.go",
		"		a.asked = true\n		return &ride{sent", "		return &ride{sent", "./locker", "Relay|StrictStorm",
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

	// the keeper.
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
		"asking := k.stop != nil", "asking := false", "./locker", "Joined|Refuted|Unlock",
	},
	{
		"MaxHold is ignored", "locker/keeper.go",
		"if d := c.cfg.MaxHold; d > 0 {", "if d := c.cfg.MaxHold; d < 0 {", "./locker", "MaxHold",
	},

	// giving back.
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
		"claim.NoneInFlight = !a.unsure", "claim.NoneInFlight = true", "./locker", "Withdrawn",
	},
	{
		"a release without answer is not repeated", "locker/release.go",
		"if !waiting.Pause(ctx, retry.Next()) {", "if !waiting.Pause(ctx, retry.Next()) || true {", "./locker", "Unlock",
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

	// waiting.
	{
		"no question after subscribing", "locker/acquire.go",
		"if !subscribed && a.asked {", "if a.asked || !subscribed {", "./locker", "Subscribing",
	},
	{
		"no fallback for a lost wake-up", "locker/sleep.go",
		"return waiting.Jitter(a.core.cfg.Wait.Fallback)", "return 1 << 50", "./locker", "LostWakeUp",
	},
	{
		"the end of the blocking lease is slept over", "locker/sleep.go",
		"held.RetryAfter > 0 {", "held.RetryAfter < 0 {", "./locker", "BlockingLease",
	},
	{
		"an answer is taken for silence", "locker/acquire.go",
		"a.silent, a.last = time.Time{}, err", "a.last = err", "./locker", "Silence",
	},

	// hand-off, and the local line.
	{
		"a hand-over of an earlier grant is believed", "locker/sleep.go",
		"g.Token <= a.atToken ||", "", "./locker", "HandOver",
	},
	{
		"a hand-over counts from the message", "locker/sleep.go",
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
		"t.until.after(now) >= min(t.claim.TTL/2, t.c.cfg.Wait.Fallback)", "t.until.after(now) >= 0", "./locker", "ShortLease|Nearly|Pass|Handed",
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
		"errors.Join(err, all.rollBack())", "err", "./locker", "AllOrNothing",
	},
}
