package main

// What belief in a lease rests on.
var lockerMutants = []mutant{
	{
		Name: "locker: a first question comes before its subscription", Dir: "locker",
		Find: `(\tif c\.likelyHeld\(&w\.claim\) \{\n\t\tw\.subscribe\(ctx\)\n\t\}\n)([\s\S]*?\n\tl, err = w\.attempt\(ctx\)\n)`,
		Put:  `$2$1`, Test: "./locker KnownContention",
	},
	{
		Name: "locker: a deadline is counted from the answer", Dir: "locker",
		Find: `deadlineOf\(sent, max\(`,
		Put:  `deadlineOf(c.now(), max(`, Test: "./locker .",
	},
	{
		Name: "locker: a renewed deadline is counted from the answer", Dir: "locker",
		Find: `deadlineOf\(sent, (__\.TTL)\)`,
		Put:  `deadlineOf(c.now(), $1)`, Test: "./locker .",
	},
	{
		Name: "locker: no allowance for drift", Dir: "locker",
		Find: `ttl-ttl/driftRate-margin`,
		Put:  `ttl`, Test: "./locker .",
	},
	{
		Name: "locker: time asleep does not count", Dir: "locker",
		Find: `> napless`,
		Put:  `> 1<<62`, Test: "./locker .",
	},
	{
		Name: "locker: a grant that comes late is believed", Dir: "locker",
		Find: `case time\.Duration\(until-now\) < __\.TTL/2:`,
		Put:  `case false:`, Test: "./locker .",
	},
	{
		Name: "locker: the store says lost, and the hold goes on", Dir: "locker",
		Find: `refuted := errors\.Is\(err, backend\.ErrLost\) \|\| errors\.Is\(err, backend\.ErrForeign\)`,
		Put:  `refuted := false`, Test: "./locker .",
	},
	{
		Name: "locker: no answer to a renewal is a yes", Dir: "locker",
		Find: `case err == nil:( c\.heard\(\) l\.retry = nil)`,
		Put:  `case !refuted:$1`, Test: "./locker .",
	},
	{
		Name: "locker: only the timer ends belief", Dir: "locker",
		Find: `if cause == nil && left <= 0 \{`,
		Put:  `if cause == nil && left <= -time.Hour {`, Test: "./locker .",
	},
	{
		Name: "locker: a hold that ran out is unlocked with nil", Dir: "locker",
		Find: `if l\.expired\(now\) \{( // unnoticed)`,
		Put:  `if false {$1`, Test: "./locker .",
	},
	{
		Name: "locker: tokens beyond those reserved", Dir: "locker",
		Find: `c\.caps\.Fencing && l\.spare == 0`,
		Put:  `false`, Test: "./locker .",
	},
	{
		Name: "locker: handed on with the token of the one before", Dir: "locker",
		Find: `l\.token\+\+`,
		Put:  ``, Test: "./locker .",
	},
	{
		Name: "locker: a lease that is nearly over is handed on", Dir: "locker",
		Find: `(time\.Duration\(l\.until-now\) >= )min\(`,
		Put:  `${1}0*min(`, Test: "./locker .",
	},
	{
		Name: "locker: a hand-over of an earlier grant is believed", Dir: "locker",
		Find: `__\.Token <= w\.refToken \|\| `,
		Put:  ``, Test: "./locker .",
	},
	{
		Name: "locker: a hand-over counts from the message", Dir: "locker",
		Find: `deadlineOf\(w\.queued, `,
		Put:  `deadlineOf(w.core.now(), `, Test: "./locker .",
	},
	{
		Name: "locker: a hand-over counts from the answer to a heartbeat", Dir: "locker",
		Find: `p\.sent, p\.held, p\.asked = sent,`,
		Put:  `p.sent, p.held, p.asked = c.now(),`, Test: "./locker HandOverAfterAHeartbeat",
	},
	{
		Name: "locker: a grant from before a heartbeat is believed to come after it", Dir: "locker",
		Find: `w\.since, w\.queued, w\.refToken = w\.core\.local\(p\.sent\), p\.sent, p\.held\.Token`,
		Put:  `w.since, w.queued = w.core.local(p.sent), p.sent`, Test: "./locker HandOverAfterAHeartbeat",
	},
	{
		Name: "locker: a place of many keys waits for a slow request", Dir: "locker",
		Find: `slow := time\.AfterFunc\(2\*limit, cancel\)`,
		Put:  `slow := time.AfterFunc(20*limit, cancel)`, Test: "./locker HeartbeatWithoutAnAnswer",
	},
	{
		Name: "locker: a heartbeat comes late for the end of a lease", Dir: "locker",
		Find: `if held\.RetryAfter > 0 (\{ interval = min)`,
		Put:  `if false $1`, Test: "./locker HeartbeatAtTheEnd",
	},
	{
		Name: "locker: no tombstone for a claim without an answer", Dir: "locker",
		Find: `( claim\.NoneInFlight = )!w\.unsure`,
		Put:  `${1}true`, Test: "./locker .",
	},
	{
		Name: "locker: no tombstone behind a repeated attempt", Dir: "locker",
		Find: `l\.claim\.NoneInFlight = !w\.unsure`,
		Put:  `l.claim.NoneInFlight = true`, Test: "./locker .",
	},
	{
		Name: "locker: a claim without an answer is forgotten", Dir: "locker",
		Find: `if !w\.asked \|\| !w\.unsure && !w\.claim\.Queue \{`,
		Put:  `if true {`, Test: "./locker .",
	},
	{
		Name: "locker: a grant after the cancellation is kept", Dir: "locker",
		Find: `case ctx\.Err\(\) != nil:( // granted)`,
		Put:  `case false:$1`, Test: "./locker .",
	},
	{
		Name: "locker: a release beside a renewal", Dir: "locker",
		Find: `if under != nil \{( <-under)`,
		Put:  `if false {$1`, Test: "./locker .",
	},
	{
		Name: "locker: Close leaves belief alone", Dir: "locker",
		Find: `__\.endHolds\(ErrClosed\)`,
		Put:  ``, Test: "./locker .",
	},
	{
		Name: "locker: Lead ends for good at MaxHold", Dir: "locker",
		Find: ` && !errors\.Is\(err, ErrMaxHold\):( return err)`,
		Put:  `:$1`, Test: "./locker .",
	},
	{
		Name: "locker: who always wins never stands back", Dir: "locker",
		Find: `now\.Sub\(s\.run\) >= longestRun`,
		Put:  `false`, Test: "./locker StandingBack",
	},
	{
		Name: "locker: what a guard protects is not closed before the release", Dir: "locker",
		Find: `if h\.resource != nil \{`,
		Put:  `if h.resource != nil { go h.resource.close() }; if false {`, Test: "./locker Scoped",
	},
	{
		Name: "locker: what a guard protects stays open after a loss", Dir: "locker",
		Find: `if first && open != nil \{`,
		Put:  `if false {`, Test: "./locker Scoped",
	},
	{
		Name: "locker: the next opens while the last one's is open", Dir: "locker",
		Find: `if i < 0 \{( resources)`,
		Put:  `if true {$1`, Test: "./locker Scoped",
	},
	{
		Name: "locker: an Unlock that lost its lease while it closed is nil", Dir: "locker",
		Find: `unlocked = unlocked && lasted`,
		Put:  `_ = lasted`, Test: "./locker Scoped",
	},
	{
		Name: "locker: the lease is not renewed while what it protects is closed", Dir: "locker",
		Find: `if h\.maxAt = 0; !l\.over \{( l\.timer)`,
		Put:  `if h.maxAt, l.over = 0, true; false {$1`, Test: "./locker Scoped",
	},
	{
		Name: "locker: a save that found the hold gone is taken for made", Dir: "locker",
		Find: `errors\.Is\(err, errReleasedBefore\) && !l\.expired\(c\.now\(\)\)`,
		Put:  `errors.Is(err, errReleasedBefore)`, Test: "./locker Store",
	},
	{
		Name: "locker: a save that comes too late is taken for an end of the lease", Dir: "locker",
		Find: `l\.expired\(c\.now\(\)\) && l\.save == nil`,
		Put:  `l.expired(c.now())`, Test: "./locker Store",
	},
	{
		Name: "locker: a claim that came to nothing leaves its mark", Dir: "locker",
		Find: `\tclaim\.NotBefore = 0 // what`,
		Put:  `	// what`, Test: "./locker Once",
	},
	{
		Name: "locker: a ticket is good twice", Dir: "locker",
		Find: `end\(l\.info, err\) if err == nil \{`,
		Put:  "end(l.info, err)\n\tif err == nil || errors.Is(err, backend.ErrLost) {", Test: "./locker AdoptOnce",
	},
	{
		Name: "locker: a ticket without an answer is good", Dir: "locker",
		Find: `_ = c\.giveUp\(ctx, l\)( if errors\.Is\(err, backend\.ErrLost\) \{ return lostBecause\(fmt\.Errorf\("the ticket)`,
		Put:  "if !errors.Is(err, backend.ErrLost) { return nil }\n_ = c.giveUp(ctx, l)$1", Test: "./locker AdoptUnanswered",
	},
	{
		Name: "locker: who comes late with a ticket keeps what it got", Dir: "locker",
		Find: `_ = c\.giveUp\(ctx, l\)( if errors\.Is\(err, backend\.ErrLost\) \{ return lostBecause\(fmt\.Errorf\("the ticket)`,
		Put:  "$1", Test: "./locker AdoptTooLate|AdoptOnce",
	},
	{
		Name: "locker: a ticket comes before the end of the hold", Dir: "locker",
		Find: `if err := h\.unlock\(\); err != nil \{ return t, err \}`,
		Put:  "", Test: "./locker Detach",
	},
	{
		Name: "locker: what is detached is released", Dir: "locker",
		Find: `if h\.detached && cause == nil`,
		Put:  `if false && cause == nil`, Test: "./locker Detach",
	},
	{
		Name: "locker: what did not close is detached", Dir: "locker",
		Find: `if h\.detached && cause == nil && h\.closed == nil`,
		Put:  `if h.detached && cause == nil`, Test: "./locker Detach",
	},
}
