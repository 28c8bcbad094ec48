package main

import "slices"

// The defects. Tests is as narrow as the claim: the named tests are the ones that guard the line.
var mutants = slices.Concat(lockerMutants, storeMutants)

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
		"lua: another max_ttl lets the next one in", "internal/redisclaim/common/guard.lua",
		"if unfit then closed = {1, 'of another rule'} end", "", "./internal/redisclaim", "Guard",
	},
	{
		"lua: another max_ttl is no reason to refuse", "internal/redisclaim/common/fit.lua",
		"if unfit then return unfit end", "", "./internal/redisclaim", "Guard",
	},
	{
		"lua: who finds the server changed writes his own rule", "internal/redisclaim/common/guard.lua",
		"elseif rule ~= ours then", "elseif rule ~= ours and known == life then", "./internal/redisclaim", "Guard",
	},
	{
		"lua: the grace is no part of the rule", "internal/redisclaim/common/guard.lua",
		"elseif rule ~= ours then", "elseif string.match(rule, '^%d+') ~= longest then", "./internal/redisclaim", "Guard",
	},
	{
		"lua: tokens run away from the clock", "internal/redisclaim/common/holders.lua",
		"math.max(1, math.min(c.reserve, math.max(us, c.floor or 0) + 10000 - token))", "c.reserve", "./internal/redisclaim", "Tokens",
	},
	{
		"lua: a replica renews", "internal/redisclaim/fast/renew.lua",
		"local r = redis.pcall('PEXPIRE', K, math.max(left, ARGV[2] + 1) + margin)",
		"if left > ARGV[2] + 1 then return OK end local r = redis.pcall('PEXPIRE', K, math.max(left, ARGV[2] + 1) + margin)",
		"./internal/redisclaim", "Replica",
	},
	{
		"redisstore: a message grants before the replicas have it", "internal/redisstore/watch.go",
		"if s.store.cfg.Replicas > 0 {", "if false {", "./redisbackend", "TestReplicas",
	},
	{
		"redisstore: no guard where others have one", "internal/redisstore/check.go",
		"err = s.checkMark(ctx)", "", "./redisbackend", "Unguarded",
	},
	{
		"locker: All waits for what it gives back", "locker/all.go",
		"\tpatiently(done)\n\tselect {", "\t<-done\n\tselect {", "./locker", "AllKeeps",
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
		"if f >= us then token = f + 1 end", "", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: token from the counter alone", "internal/redisclaim/fast/acquire.lua",
		"if f >= us then token = f + 1 end", "token = f + 1", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: release without a wake-up", "internal/redisclaim/fast/release.lua",
		"redis.pcall('PUBLISH', K .. ':free', 'free')", "", "./redisbackend", "Conformance",
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

	// Package tracing.
	{
		"children see the reserved id", "tracing/hold.go",
		"k.Context = trace.ContextWithSpan(ctx, span)", "k.Context = trace.ContextWithSpan(&reservation{Context: ctx, sc: k.span.sc}, span)",
		"./tracing", "ManyAtOnce|Uncontended",
	},
	{
		"the claim names the wait", "tracing/wait.go",
		"return traceparent(w.holdSC)", "return traceparent(w.span.sc)", "./tracing", "LinksBetween",
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
		"if k.inWay {\n\t\treturn k.n - 1", "if false {\n\t\treturn k.n - 1", "./tracing", "Passes",
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
}
