package main

import "slices"

// The defects. Tests is as narrow as the claim: the named tests are the ones that guard the line.
var mutants = slices.Concat(lockerMutants, storeMutants, luaMutants)

// The defects behind package locker.
var storeMutants = []mutant{
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
		"if !c.NoneInFlight {", "if false {", "./backend/membackend", ".",
	},
	{
		"mem: renewal shortens", "internal/memstore/store.go",
		"h.expires = later(h.expires, now.Add(c.TTL))\n\tif c.MinToken", "h.expires = now.Add(c.TTL)\n\tif c.MinToken", "./backend/membackend", ".",
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
		"mem: anybody saves", "internal/memstore/store.go",
		"	if held {\n		s.save(c)", "	if true {\n		s.save(c)", "./backend/membackend", "Conformance",
	},
	{
		"mem: a state is the caller's memory", "internal/memstore/state.go",
		"slices.Clone(c.Save)", "c.Save", "./backend/membackend", "Conformance",
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
		"if c.MinToken > h.token {", "if false {", "./backend/membackend", ".",
	},

	// Package tracing.
	{
		"children see the reserved id", "tracing/hold.go",
		"k.Context = k.span.within(ctx)", "k.Context = k.span.within(&reservation{Context: ctx, sc: k.span.sc})",
		"./tracing", "ManyAtOnce|Uncontended",
	},
	{
		"the claim names the wait", "tracing/wait.go",
		"return traceparent(w.hold.span.sc)", "return traceparent(w.span.sc)", "./tracing", "LinksBetween",
	},
	{
		"Close leaves spans untold", "tracing/observer.go",
		"case locker.EventClose:\n\t\to.Flush()", "case locker.EventClose:", "./tracing", "ToldLater",
	},
	{
		"metrics are collected without what was put off", "tracing/metrics.go",
		"\t\to.notes.flush()\n", "", "./tracing", "ToldLater",
	},
	{
		"spans end when they are told", "tracing/release.go",
		"span.End(trace.WithTimestamp(r.ended))", "span.End()", "./tracing", "ToldLater",
	},
	{
		"what is put off has no bound", "tracing/later.go",
		"if full {", "if false && full {", "./tracing", "MoreThanCanWait",
	},
	{
		"a sampler is believed for ever", "tracing/late.go",
		"s.o.promptly.Store(true)", "_ = s.o", "./tracing", "FickleSampler",
	},
	{
		"a wait forgets who was there before it", "tracing/blockers.go",
		"if k.inWay {\n\t\treturn k, k.class, k.n - 1", "if false {\n\t\treturn k, k.class, k.n - 1", "./tracing", "Passes",
	},
	{
		"a key that was idle remembers who was in the way", "tracing/blockers.go",
		"k.seen, k.n, k.inWay = k.seen[:0], 0, false", "k.seen, k.n = k.seen[:0], k.n+0", "./tracing", "IdleKeyForgets",
	},
	{
		"a hold's ctx has another's span", "tracing/hold.go",
		"return k.span.shown()", "return k.wait.span.shown()", "./tracing", "SpanOfContext",
	},
	{
		"a lease that was dropped is remembered", "tracing/observer.go",
		"o.leases.over(e.Lease.Traceparent, time.Now())", "_ = e.Lease", "./tracing", "DroppedLease",
	},
	{
		"a passed hold ends when its lease does", "tracing/lease.go",
		"at = l.ended", "_ = l.ended", "./tracing", "Passes",
	},
	{
		"errors quote the key", "tracing/observer.go",
		"return withoutKey(err.Error(), key)", "return err.Error()", "./tracing", "KeysAreNotShown",
	},
	{
		"the agent's attempts are its sender's", "tracing/contention/tracker.go",
		"return context.WithValue(ctx, opKey{}, nil), ignore", "return ctx, ignore", "./tracing/contention", "Snapshot|Profile",
	},
	{
		"who asks behind its own release wins, for ever", "locker/behind.go",
		"a.before == nil || !a.claim.Queue", "a.before == nil", "./locker", "QuestionBehindRelease",
	},
	{
		"nobody hears that a lease is over", "locker/tenure.go",
		"close(t.ended)", "_ = t.ended", "./locker", "QuestionBehindRelease",
	},
	{
		"time asleep is never read again", "locker/asleep_linux.go",
		"stepped.Abs() < napless/4", "stepped.Abs() >= 0", "./locker", "AsleepIsReadAgain",
	},
	{
		"a nested lock speaks for the outer one", "locker/observer.go",
		"if c.cfg.Observer == nil {\n\t\treturn // one", "if false {\n\t\treturn // one", "./locker", "ClientsOwn",
	},

	// Package etcdbackend.
	{
		"etcd: a free lock is not compared with the line", "etcdbackend/acquire.go",
		"guards: []clientv3.Cmp{absent(p.line, p.end())}", "guards: []clientv3.Cmp{absent(key, \"\")}", "./etcdbackend", "Conformance/one",
	},
	{
		"etcd: a released claim may come again", "etcdbackend/write.go",
		"w.guards = append(w.guards, absent(p.tombstone(a.c), \"\"))", "", "./etcdbackend", "Conformance/one/tombstone",
	},
	{
		"etcd: a shared lease keeps the silent alive", "etcdbackend/lease.go",
		"p.b.evict(l)", "", "./etcdbackend", "Silent|Forgotten",
	},
	{
		"etcd: a renewal does not look at the entry", "etcdbackend/renew.go",
		"len(kvs) == 0 || kvs[0].CreateRevision != one.created", "false", "./etcdbackend", "Revoked|DeletedKey|Conformance/one/dropped",
	},
	{
		"etcd: every renewal is a keepalive", "etcdbackend/lease.go",
		"ttl += ttl / 3", "ttl += 0", "./etcdbackend", "Keepalives",
	},
	{
		"etcd: what is being released is over already", "etcdbackend/release.go",
		"r.certain = h.granted && !h.loose", "h.until, r.certain = time.Now(), h.granted && !h.loose", "./etcdbackend", "BesideKeepalives",
	},
	{
		"etcd: a deletion that is late finds the next claim's entry", "etcdbackend/release.go",
		"h.stray = h.stray || r.loose", "_ = r.loose", "./etcdbackend", "StraySlot",
	},
	{
		"etcd: a claim of two clients stands in line twice", "etcdbackend/acquire.go",
		"err != nil || o.line.own(a.c).key != key", "err != nil", "./etcdbackend", "TwoClients",
	},
	{
		"etcd: no request has a limit", "etcdbackend/limit.go",
		"one.leave()\n\t\tone.cancel()\n\t}\n}\n\n// close", "one.leave()\n\t}\n}\n\n// close", "./etcdbackend", "Limits",
	},
	{
		"etcd: a late request brings back an older state", "etcdbackend/renew.go",
		", modified: h.written}", "}", "./etcdbackend", "LateSave",
	},
	{
		"etcd: who waits may save", "etcdbackend/release.go",
		"r.saved || !e.granted && !r.certain", "r.saved", "./etcdbackend", "LetIn|Conformance/one/state",
	},
	{
		"etcd: a renewal takes the short way and saves nothing", "etcdbackend/renew.go",
		"case c.Save != nil || h.lease", "case h.lease", "./etcdbackend", "Conformance/one/state",
	},
	{
		"etcd: who finds that another was first has no identity", "etcdbackend/identity.go",
		"rpctypes.ErrLeaseExist", "rpctypes.ErrLeaseNotFound", "./etcdbackend", "IdentityRace",
	},
}
