package main

// Who holds in etcd, and for how long.
var etcdMutants = []mutant{
	{
		Name: "etcd: a free lock is not compared with the queue", Dir: "etcdbackend",
		Find: `createdBefore\(p\.queue, p\.end\(\), 1\)`,
		Put:  `absent(p.entry(a.c, a.local.slot))`, Test: "./etcdbackend .", Slow: true,
	},
	{
		Name: "etcd: a released claim may come again", Dir: "etcdbackend",
		Find: `w\.guards = append\(w\.guards, absent\(p\.tombstone\(a\.c\)\)\)`,
		Put:  `_ = w.guards`, Test: "./etcdbackend .", Slow: true,
	},
	{
		Name: "etcd: a lease is counted from the answer to its keepalive", Dir: "etcdbackend",
		Find: `l\.began, l\.ttl = f\.sent, ttl`,
		Put:  `l.began, l.ttl = time.Now(), ttl`, Test: "./etcdbackend .", Slow: true,
	},
	{
		Name: "etcd: a lease is counted from its grant", Dir: "etcdbackend",
		Find: `(l\.id = reply\.ID)`,
		Put: `$1
l.began = time.Now()`, Test: "./etcdbackend .", Slow: true,
	},
	{
		Name: "etcd: clocks run at one rate", Dir: "etcdbackend",
		Find: `ttl - age - age/maxDrift`,
		Put:  `ttl - age`, Test: "./etcdbackend .", Slow: true,
	},
	{
		Name: "etcd: a shared lease keeps the silent alive", Dir: "etcdbackend",
		Find: `b\.removeEnded\(l\)`,
		Put:  `_ = l`, Test: "./etcdbackend .", Slow: true,
	},
	{
		Name: "etcd: a renewal does not look at the entry", Dir: "etcdbackend",
		Find: `case len\(kvs\) == 0 \|\| kvs\[0\]\.CreateRevision != l\.created:( l\.answer <- )backend\.ErrLost`,
		Put:  `case len(kvs) == 0 || kvs[0].CreateRevision != l.created:${1}nil`, Test: "./etcdbackend .", Slow: true,
	},
	{
		Name: "etcd: a release deletes whatever has the name", Dir: "etcdbackend",
		Find: `guards = append\(guards, same\(e\)\)`,
		Put:  `_ = e`, Test: "./etcdbackend .", Slow: true,
	},
}
