package main

// Who holds in etcd, and for how long.
var etcdMutants = []mutant{
	{
		Name: "etcd: a free lock is not compared with the queue", Dir: "etcdbackend",
		Find: `createdBefore\(p\.queue, p\.end\(\), 1\)`,
		Put:  `absent(p.entry(a.c, a.local.slot))`, Test: "./etcdbackend TestConformance$/one/exclusive",
	},
	{
		Name: "etcd: who holds counts once", Dir: "etcdbackend", Find: `(last = e\s+)sum \+= e\.weight`, Put: "${1}sum++",
		Test: "./etcdbackend WeightsOnlyMoveForward",
	},
	{
		Name: "etcd: who comes counts once", Dir: "etcdbackend", Find: `permit && max\(c\.Weight, 1\) <= left`, Put: "permit && 1 <= left",
		Test: "./etcdbackend AdmitsByWeight",
	},
	{
		Name: "etcd: a weight is not in the key", Dir: "etcdbackend", Find: `if c\.Weight > 1 \{`, Put: "if false {",
		Test: "./etcdbackend WeightIsInTheKey",
	},
	{
		Name: "etcd: a permit is heavier than the limit", Dir: "etcdbackend", Find: ` && weight <= n`, Put: "",
		Test: "./etcdbackend ForeignWeights",
	},
	{
		Name: "etcd: a released claim may come again", Dir: "etcdbackend",
		Find: `w\.guards = append\(w\.guards, absent\(p\.tombstone\(a\.c\)\)\)`,
		Put:  `_ = w.guards`, Test: "./etcdbackend ResentPut",
	},
	{
		Name: "etcd: a lease is counted from the answer to its keepalive", Dir: "etcdbackend",
		Find: `l\.began, l\.ttl = f\.sent, ttl`,
		Put:  `l.began, l.ttl = time.Now(), ttl`, Test: "./etcdbackend LeaseCounts",
	},
	{
		Name: "etcd: a lease is counted from its grant", Dir: "etcdbackend",
		Find: `(l\.id = reply\.ID)`,
		Put: `$1
l.began = time.Now()`, Test: "./etcdbackend LeaseCounts",
	},
	{
		Name: "etcd: clocks run at one rate", Dir: "etcdbackend",
		Find: `ttl - age - age/maxDrift`,
		Put:  `ttl - age`, Test: "./etcdbackend LeaseLasts",
	},
	{
		Name: "etcd: a shared lease keeps the silent alive", Dir: "etcdbackend",
		Find: `b\.removeEnded\(l\)`,
		Put:  `_ = l`, Test: "./etcdbackend SilentHold", Slow: true,
	},
	{
		Name: "etcd: a renewal does not look at the entry", Dir: "etcdbackend",
		Find: `case len\(kvs\) == 0 \|\| kvs\[0\]\.CreateRevision != l\.created:( l\.answer <- )backend\.ErrLost`,
		Put:  `case len(kvs) == 0 || kvs[0].CreateRevision != l.created:${1}nil`, Test: "./etcdbackend PeerDeletedKey", Slow: true,
	},
	{
		Name: "etcd: a release deletes whatever has the name", Dir: "etcdbackend",
		Find: `guards = append\(guards, same\(e\)\)`,
		Put:  `_ = e`, Test: "./etcdbackend KeysAreUsedAgain|LateDeletion|PeerStaleUnlock",
	},
	{
		Name: "etcd: a grant is believed before the keepalive", Dir: "etcdbackend",
		Find: `f\.wait\(ctx\)(; errors\.Is\(err, backend\.ErrLost\) \{[^}]*return backend\.Grant)`,
		Put:  "func() error { _ = f; return nil }()$1", Test: "./etcdbackend NobodyBelieves",
	},
	{
		Name: "etcd: a read grants", Dir: "etcdbackend", Find: `return a\.confirm\(ctx, q, own\)`,
		Put:  "if a.local.lease != nil { return result{granted: own, lease: a.local.lease}, nil }\nreturn a.confirm(ctx, q, own)",
		Test: "./etcdbackend StaleRead",
	},
	{
		Name: "etcd: a queue that was read is not compared", Dir: "etcdbackend", Find: `__\(p\.queue, p\.end\(\), q\.revision\+1\), (absent)`,
		Put: "$1", Test: "./etcdbackend QueueChanges",
	},
	{
		Name: "etcd: an entry is removed though it was written again", Dir: "etcdbackend", Find: `\.If\(seen\)`, Put: ".If([]clientv3.Cmp{seen}[:0]...)",
		Test: "./etcdbackend BackWhileRemoved",
	},
	{
		Name: "etcd: no tombstone for what was resent", Dir: "etcdbackend", Find: `(inFlight \|\| lc\.putPending)`, Put: "$1 && false",
		Test: "./etcdbackend ResentPut",
	},
	{
		Name: "etcd: a name is used again while a Put of it is in flight", Dir: "etcdbackend", Find: `lc\.busy == 0 && !lc\.putPending`,
		Put: "lc.busy == 0", Test: "./etcdbackend LooseSlot",
	},
	{
		Name: "etcd: a heartbeat says of a grant that it waits", Dir: "etcdbackend", Find: `\|\| own\.granted \|\|`, Put: "||",
		Test: "./etcdbackend HeartbeatTellsWhoWaits",
	},
	{
		Name: "etcd: a refusal forgets the tokens of those who left", Dir: "etcdbackend", Find: `uint64\(own\.created\)<<tokenShift-1`,
		Put: "0", Test: "./etcdbackend TestConformance$/one/fair/token",
	},
	{
		Name: "etcd: a counter is not compared", Dir: "etcdbackend", Find: `unwritten\(key, seen\.modified\)`,
		Put: "createdBefore(key, \"\", 1<<62)", Test: "./etcdbackend CounterIsCompared",
	},
	{
		Name: "etcd: a counter is not raised with the token", Dir: "etcdbackend", Find: `seen\.last, c\.MinToken\+uint64\(max\(c\.Reserve, 1\)\)-1`,
		Put: "seen.last, 1", Test: "./etcdbackend TestConformance$/one/min-token/written",
	},
	{
		Name: "etcd: who is handed a lock over has the token of its place", Dir: "etcdbackend",
		Find: `w\.guards = append\(w\.guards, unwritten\(a\.paths\.counter\(\), 0\)\)`,
		Put:  "_ = w", Test: "./etcdbackend TestConformance$/one/min-token/handed",
	},
	{
		Name: "etcd: a reader overtakes a writer", Dir: "etcdbackend", Find: `last\.granted && (e\.class == first\.class)`, Put: "(last.granted || true) && $1",
		Test: "./etcdbackend TestConformance$/one/queue/readers-and-writer",
	},
	{
		Name: "etcd: no answer is a no", Dir: "etcdbackend", Find: `(fmt\.Errorf\("etcd: no answer within %v)", b\.__\)(\s+\})`,
		Put: "${1}: %w\", b.cfg.RequestTimeout, backend.ErrUnavailable)$2", Test: "./etcdbackend IdentityEnds|LooseSlot|ForgottenAttempt",
	},
	{
		Name: "etcd: a permit too many", Dir: "etcdbackend", Find: `e\.weight <= e\.limit-sum`, Put: "e.weight <= e.limit-sum+1",
		Test: "./etcdbackend TestConformance$/one/permit/handed-over",
	},
	{
		Name: "etcd: a mark is not compared", Dir: "etcdbackend",
		Find: `w\.guards = append\(w\.guards, absent\(p\.early\(\)\)\)`,
		Put:  `_ = w.guards`, Test: "./etcdbackend TestConformance$/one/early/r",
	},
	{
		Name: "etcd: a release leaves what it has for who waits", Dir: "etcdbackend",
		Find: `!r\.left && \(e\.granted \|\| sure\)`,
		Put:  `!r.left`, Test: "./etcdbackend TestConformance$/one/state/not-in-line",
	},
}
