package backendtest

import "github.com/holdfast-go/holdfast/backend"

var tombstoneRules = []rule{
	{
		name: "tombstone/late-attempt", run: lateAttempt,
		why: "A release may overtake its own acquire on another connection. The attempt that " +
			"lands after it must be refused," +
			" or it leaves a lock that nobody knows of, for a whole lease (and on a kept-alive " +
			"etcd session for ever).",
	},
	{
		name: "tombstone/late-copy", run: lateCopy,
		why: "A claim that was granted, lost its reply and was released may still have a copy in " +
			"flight. It is as late as any.",
	},
	{
		name: "tombstone/outlives-others", run: tombstoneOutlivesOthers,
		why: "Between a release and the late attempt others may lock and unlock the key. Their " +
			"passing must not lift the tombstone.",
	},
	{
		name: "tombstone/while-another-holds", run: tombstoneWhileHeld,
		why: "A claim that is withdrawn while another holds is refused for good, also when the " +
			"key is free later.",
	},
	{
		name: "tombstone/many", run: manyTombstones,
		why: "A hundred cancelled waits on one key must not break it, nor grow without bound " +
			"what every later verb reads.",
	},
	{
		name: "tombstone/expired-hold", run: tombstoneOfExpired,
		why: "A lease that ran out is released by its holder like any other, and its copies " +
			"stay refused.",
	},
	{
		name: "tombstone/lasts", run: tombstoneLasts,
		why: "An attempt may be in flight for as long as its client waits for answers, which is " +
			"a TTL. A tombstone that is gone" +
			" by then lets it in.",
	},
}

// covers: A4, A2, C9
func lateAttempt(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.lost("Release before any attempt landed", release(e.ctx, a, c))
	for _, client := range []backend.Backend{b, a} {
		e.tombstoned(client, c)
	}
	e.free(b, key)
	e.tombstoned(b, c)
}

// covers: A4
func lateCopy(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.acquire(a, c)
	e.release(a, c)
	e.tombstoned(b, c)
	e.lost("Renew of a released claim", a.Renew(e.ctx, c))
	e.free(b, key)
}

// covers: A4, C8
func tombstoneOutlivesOthers(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.lost("Release before any attempt landed", release(e.ctx, a, c))
	for range 3 {
		e.free(b, key)
		inFlight := e.claim(key)
		e.acquire(b, inFlight)
		e.release(b, inFlight)
	}
	e.tombstoned(a, c)
	holder := e.claim(key)
	e.acquire(b, holder)
	e.renewed(b, holder)
	e.release(b, holder)
	e.tombstoned(a, c)
}

// covers: A4, X10
func tombstoneWhileHeld(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.claim(key)
	e.acquire(a, holder)
	c := e.claim(key)
	e.held(b, c)
	e.lost("Release of a claim that waits", release(e.ctx, b, c))
	if _, err := b.TryAcquire(e.ctx, c); backend.AnswerOf(err) != backend.No {
		e.Fatalf("a withdrawn claim, while another holds = %v, want ErrLost or ErrHeld", err)
	}
	e.release(a, holder)
	e.tombstoned(b, c)
	e.free(a, key)
}

// covers: W8, A4
func manyTombstones(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	var last backend.Claim
	for range 100 {
		last = e.claim(key)
		e.lost("Release before any attempt landed", release(e.ctx, a, last))
	}
	e.tombstoned(b, last)
	c := e.claim(key)
	e.acquire(b, c)
	e.held(a, e.claim(key))
	e.renewed(b, c)
	e.release(b, c)
	e.tombstoned(a, c)
	e.free(a, key)
}

// covers: A4, C3
func tombstoneOfExpired(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.brief(key)
	e.acquire(a, c)
	e.ranOut(b, c)
	e.lost("Release of a lease that ran out", release(e.ctx, a, c))
	e.tombstoned(b, c)
}

// covers: A4
func tombstoneLasts(e *env) {
	a, b := e.open(), e.open()
	c := e.brief(e.key("k"))
	e.lost("Release before any attempt landed", release(e.ctx, a, c))
	e.pause(c.TTL + c.TTL/2)
	e.tombstoned(b, c)
}

// tombstoned must refuse c with ErrLost for ever.
func (e *env) tombstoned(b backend.Backend, c backend.Claim) {
	e.Helper()
	g, err := b.TryAcquire(e.ctx, c)
	if err == nil {
		e.forget(b, c)
		e.Fatalf("a claim that was released was granted token %d afterwards", g.Token)
	}
	e.lost("TryAcquire of a claim that was released", err)
}
