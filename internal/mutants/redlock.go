package main

// What a majority rests on.
var redlockMutants = []mutant{
	{
		Name: "redlock: half of an even number is a majority", Dir: "redlock",
		Find: `nodes: nodes, quorum: len\(nodes\)/2 \+ 1, caps`,
		Put:  `nodes: nodes, quorum: (len(nodes) + 1) / 2, caps`, Test: "./redlock .",
	},
	{
		Name: "redlock: a minority can renew", Dir: "redlock",
		Find: `case r\.yes >= r\.quorum:( r\.end\(nil\))`,
		Put:  `case r.yes > 0:$1`, Test: "./redlock .",
	},
	{
		Name: "redlock: a token is not written back", Dir: "redlock",
		Find: `n\.stored != 0 && n\.stored >= t\.highest`,
		Put:  `n.stored != 0`, Test: "./redlock .",
	},
	{
		Name: "redlock: no tombstone for an attempt that is in flight", Dir: "redlock",
		Find: ` && c\.complete && !s\.inFlight`,
		Put:  ` && c.complete`, Test: "./redlock .",
	},
	{
		Name: "redlock: no tombstone for what another client began", Dir: "redlock",
		Find: ` && c\.complete && !s\.inFlight`,
		Put:  ` && !s.inFlight`, Test: "./redlock .",
	},
	{
		Name: "redlock: no tombstone where an attempt is given back", Dir: "redlock",
		Find: `q\.claim\.NoneInFlight = !s\.inFlight`,
		Put:  `q.claim.NoneInFlight = true`, Test: "./redlock .",
	},
	{
		Name: "redlock: no tombstone with a release that is owed", Dir: "redlock",
		Find: `claim\.NoneInFlight = false( n\.mu)`,
		Put:  `claim.NoneInFlight = true$1`, Test: "./redlock .",
	},
	{
		Name: "redlock: given back, and asked again under the same name", Dir: "redlock",
		Find: `s\.generation\+\+`,
		Put:  ``, Test: "./redlock .",
	},
	{
		Name: "redlock: a release without an answer is forgotten", Dir: "redlock",
		Find: `if !confirmed \{ __\[i\]\.owe\(q\.claim\) \}`,
		Put:  ``, Test: "./redlock .",
	},
	{
		Name: "redlock: one server twice is two", Dir: "redlock",
		Find: `other != n && other\.identity\(\) == id`,
		Put:  `false`, Test: "./redlock .",
	},
	{
		Name: "redlock: other lists of nodes are not noticed", Dir: "redlock",
		Find: `list != "" && r\.repeats == 0`,
		Put:  `list != "" && false`, Test: "./redlock .",
	},
	{
		Name: "redlock: nodes are asked for leases without drift", Dir: "redlock",
		Find: `return ttl \+ time\.Duration\(float64\(ttl\)\*more\)`,
		Put:  `return ttl + 0*time.Duration(more)`, Test: "./redlock .",
	},
}
