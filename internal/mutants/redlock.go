package main

// What a majority rests on.
var redlockMutants = []mutant{
	{
		Name: "redlock: half of an even number is a majority", Dir: "redlock",
		Find: `nodes: nodes, quorum: len\(nodes\)/2 \+ 1, caps`,
		Put:  `nodes: nodes, quorum: (len(nodes) + 1) / 2, caps`, Test: "./redlock MinorityIsGivenBack|MajorityDown|ClaimsThatMeet|TokensRise|TestConformance$/four",
	},
	{
		Name: "redlock: a minority can renew", Dir: "redlock",
		Find: `case r\.yes >= r\.quorum:( r\.end\(nil\))`,
		Put:  `case r.yes > 0:$1`, Test: "./redlock RenewByMajority",
	},
	{
		Name: "redlock: a token is not written back", Dir: "redlock",
		Find: `n\.stored != 0 && n\.stored >= t\.highest`,
		Put:  `n.stored != 0`, Test: "./redlock TokenIsWrittenBack|TokensRise",
	},
	{
		Name: "redlock: no tombstone for an attempt that is in flight", Dir: "redlock",
		Find: ` && c\.complete && !s\.inFlight`,
		Put:  ` && c.complete`, Test: "./redlock ReleaseWhereAnAttemptIsLate",
	},
	{
		Name: "redlock: no tombstone for what another client began", Dir: "redlock",
		Find: ` && c\.complete && !s\.inFlight`,
		Put:  ` && !s.inFlight`, Test: "./redlock ReleaseOfAnothersClaim",
	},
	{
		Name: "redlock: no tombstone where an attempt is given back", Dir: "redlock",
		Find: `q\.claim\.NoneInFlight = !s\.inFlight`,
		Put:  `q.claim.NoneInFlight = true`, Test: "./redlock GivenBackWhereAnAttemptIsLate",
	},
	{
		Name: "redlock: no tombstone with a release that is owed", Dir: "redlock",
		Find: `claim\.NoneInFlight = false( n\.putOwed)`,
		Put:  `claim.NoneInFlight = true$1`, Test: "./redlock OwedReleaseLeavesTombstone",
	},
	{
		Name: "redlock: given back, and asked again under the same name", Dir: "redlock",
		Find: `s\.generation\+\+`,
		Put:  ``, Test: "./redlock GivenBackWhereAnAttemptIsLate",
	},
	{
		Name: "redlock: a release without an answer is forgotten", Dir: "redlock",
		Find: `if !confirmed \{ __\[i\]\.owe\(q\.claim\) \}`,
		Put:  ``, Test: "./redlock Owed",
	},
	{
		Name: "redlock: one server twice is two", Dir: "redlock",
		Find: `other != n && other\.identity\(\) == id`,
		Put:  `false`, Test: "./redlock SameServer",
	},
	{
		Name: "redlock: other lists of nodes are not noticed", Dir: "redlock",
		Find: `err := r\.otherList\(\); err != nil`,
		Put:  `err := r.otherList(); err != nil && false`, Test: "./redlock List",
	},
	{
		Name: "redlock: nodes are asked for leases without drift", Dir: "redlock",
		Find: `return ttl \+ time\.Duration\(float64\(ttl\)\*more\)`,
		Put:  `return ttl + 0*time.Duration(more)`, Test: "./redlock Drift",
	},
	{
		Name: "redlock: half of the nodes are a majority", Dir: "redlock", Find: `: len\(nodes\)/2 \+ 1, caps`, Put: ": len(nodes)/2, caps",
		Test: "./redlock MinorityIsGivenBack|RenewByMajority",
	},
	{
		Name: "redlock: who did not answer said no", Dir: "redlock", Find: `return &v\.unknown`, Put: "return &v.no",
		Test: "./redlock MajorityDown|AttemptIsLate",
	},
	{
		Name: "redlock: a failed attempt keeps what it got", Dir: "redlock", Find: `(c\.shares\[i\]\.giveBack = )true`, Put: "${1}false",
		Test: "./redlock MinorityIsGivenBack",
	},
	{
		Name: "redlock: a node is filled in after the release", Dir: "redlock", Find: `if s\.absent\(\) && !c\.released \{`,
		Put: "if s.absent() {", Test: "./redlock ReleaseEndsFillIn",
	},
	{
		Name: "redlock: a queued acquire is sent after the release", Dir: "redlock",
		Find: `(r\.verb == acquire && )\(c\.released \|\| r\.over && r\.grant\.TTL == 0\)`, Put: "${1}false", Test: "./redlock QueuedAcquireIsDropped",
	},
	{
		Name: "redlock: a release overtakes its own acquire", Dir: "redlock", Find: `if s\.busy \{ return`, Put: "if false {\nreturn",
		Test: "./redlock ReleaseNeverOvertakes",
	},
	{
		Name: "redlock: a record that was forgotten knows every attempt", Dir: "redlock", Find: `complete: fresh`, Put: "complete: fresh || true",
		Test: "./redlock RenewByMajority|ReleaseOfAnothersClaim",
	},
	{
		Name: "redlock: the token is that of the last node", Dir: "redlock", Find: `t\.highest = max\(t\.highest, (__)\)`, Put: "t.highest = $1",
		Test: "./redlock TokenIsWrittenBack|TokensRise",
	},
	{
		Name: "redlock: a repeat is told a grant that is over", Dir: "redlock",
		Find: `(c\.begin\(ctx, renew, cl, 0\)\.wait\(ctx\); err != nil)`, Put: "$1 && false",
		Test: "./redlock RepeatOfALostGrant",
	},
	{
		Name: "redlock: a repeat is another attempt", Dir: "redlock",
		Find: `(u\.repeat\(ctx, c\); backend\.AnswerOf\(err\) != backend\.No)`, Put: "$1 && false",
		Test: "./redlock RepeatTellsTheSameToken",
	},
}
