package backendtest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var releaseRules = []rule{
	{
		name: "release/by-another", run: releaseByAnother,
		why: "Release compares the owner in the step that deletes. A delete by key name frees " +
			"whoever holds by then: the oldest" +
			" bug of locks in Redis, and etcd#22082.",
	},
	{
		name: "release/twice", run: releaseTwice,
		why: "Release answers whether the claim held until now. The second must not say yes, and " +
			"must not free the next holder.",
	},
	{
		name: "release/after-expiry", run: releaseAfterExpiry,
		why: "A release of a lease that ran out is ErrLost: the caller learns that its work may " +
			"have overlapped with another's" +
			" (Redisson 3.10.6 said yes).",
	},
	{
		name: "release/after-takeover", run: releaseAfterTakeover,
		why: "The holder that was paused beyond its lease wakes up and releases. The one who " +
			"holds now must not notice.",
	},
	{
		name: "release/never-held", run: releaseNeverHeld,
		why: "What was never granted is released after every unanswered attempt. It is ErrLost " +
			"and leaves no lock.",
	},
	{
		name: "release/none-in-flight", run: releaseNoneInFlight,
		why: "NoneInFlight says that no tombstone is needed, and that the caller looks at the " +
			"time itself. Everything else stays.",
	},
	{
		name: "release/nobody-waited", run: releaseNobodyWaited,
		why: "Where nobody waits, and of a claim that did not hold, a release tells of nobody: a " +
			"hold must not be blamed for a wait.",
	},
	{
		name: "release/who-waited", run: releaseWhoWaited, needs: queue,
		why: "A release tells how many waited when the hold ended, and who is next, whether it " +
			"lets them in or not: so a holder" +
			" learns whom it kept waiting.",
	},
}

// covers: C1, C2, A12
func releaseByAnother(e *env) {
	a, b := e.open(), e.open()
	for _, noneInFlight := range []bool{false, true} {
		key := e.key("k")
		holder := e.claim(key)
		e.acquire(a, holder)
		other := e.claim(key)
		other.NoneInFlight = noneInFlight
		e.lost("Release by a claim that does not hold", release(e.ctx, b, other))
		e.held(b, e.claim(key))
		e.renewed(a, holder)
		e.release(a, holder)
	}
}

// covers: C7, C8
func releaseTwice(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.acquire(a, c)
	e.release(a, c)
	e.lost("second Release", release(e.ctx, a, c))
	next := e.claim(key)
	e.acquire(b, next)
	e.lost("third Release, while another claim holds", release(e.ctx, a, c))
	e.held(a, e.claim(key))
	e.release(b, next)
}

// covers: C3
func releaseAfterExpiry(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.brief(key)
	e.acquire(a, c)
	e.ranOut(b, c)
	e.lost("Release of a lease that ran out", release(e.ctx, a, c))
	e.free(b, key)

	untouched := e.brief(e.key("untouched")) // nobody asks for this key in between
	g := e.acquire(a, untouched)
	// A store may end leases late, but not by twice their length.
	e.pause(3*g.TTL + 50*time.Millisecond)
	const what = "Release of a lease that ran out, of a key that nobody asked for since"
	if err := release(e.ctx, a, untouched); e.h.Bubble {
		e.lost(what, err)
	} else { // a busy store may be later still, and then it held until now
		e.is(what, err, backend.ErrLost)
	}
}

// covers: C1, C3, C8
func releaseAfterTakeover(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	old := e.brief(key)
	e.acquire(a, old)
	next := e.claim(key)
	e.takeOver(b, next)
	e.lost("Release of a lease that ran out and was taken over", release(e.ctx, a, old))
	e.renewed(b, next)
	e.held(a, e.claim(key))
}

// covers: C9
func releaseNeverHeld(e *env) {
	a, b := e.open(), e.open()
	for _, noneInFlight := range []bool{false, true} {
		key := e.key("k")
		c := e.claim(key)
		c.NoneInFlight = noneInFlight
		e.lost("Release of a claim that never held", release(e.ctx, a, c))
		e.free(b, key)
	}
}

func releaseNoneInFlight(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.acquire(a, c)
	c.NoneInFlight = true
	e.release(a, c)
	e.lost("second Release", release(e.ctx, a, c))
	e.free(b, key)
}

func releaseNobodyWaited(e *env) {
	a, b := e.open(), e.open()
	for _, noneInFlight := range []bool{false, true} {
		key := e.key("k")
		c := e.claim(key)
		c.NoneInFlight = noneInFlight
		e.acquire(a, c)
		e.held(b, e.claim(key)) // which does not queue
		e.tells(a, c, 0, backend.Meta{})
		told, err := a.Release(e.ctx, c)
		e.lost("second Release", err)
		if told != (backend.Released{}) {
			e.Fatalf("a release that found nothing told of %+v", told)
		}
	}
}

func releaseWhoWaited(e *env) {
	a, b := e.open(), e.open()
	for _, noneInFlight := range []bool{false, true} {
		key := e.key("k")
		var line []backend.Claim
		for i := range 5 {
			c := e.inLine(key)
			c.Meta.PID, c.NoneInFlight = i+1, noneInFlight
			if line = append(line, c); i > 0 {
				e.stand(b, c, i)
			} else {
				e.acquire(a, c)
			}
		}
		told, err := b.Release(e.ctx, line[2])
		e.lost("Release of a claim that waits", err)
		if told != (backend.Released{}) {
			e.Fatalf("a release of a claim that waited told of %+v", told)
		}
		e.tells(a, line[0], 3, line[1].Meta)
		e.turn(b, line[1])
		e.tells(b, line[1], 2, line[3].Meta)
		e.turn(b, line[3])
		e.tells(b, line[3], 1, line[4].Meta)
		e.turn(b, line[4])
		e.tells(b, line[4], 0, backend.Meta{})
	}
	if !e.caps.Shared || e.shape != nil {
		return
	}
	key := e.key("readers")
	one, two, writer := e.inLine(key), e.inLine(key), e.inLine(key)
	one.Mode, two.Mode = backend.Shared, backend.Shared
	e.acquire(a, one)
	e.acquire(b, two)
	e.stand(b, writer, 1)
	e.tells(a, one, 1, writer.Meta) // and does not let it in
	e.stand(b, writer, 1)
	e.tells(b, two, 1, writer.Meta)
	e.turn(b, writer)
	e.release(b, writer)
}

// tells releases c, which must tell of so many that waited.
func (e *env) tells(b backend.Backend, c backend.Claim, waiting int, next backend.Meta) {
	e.Helper()
	told, answered := e.release(b, c)
	if want := (backend.Released{Waiting: waiting, Next: next}); answered && told != want {
		e.Fatalf("the release told of %+v, want %+v", told, want)
	}
}

// takeOver waits until c is granted, as the lease before it runs out.
func (e *env) takeOver(b backend.Backend, c backend.Claim) backend.Grant {
	e.Helper()
	var g backend.Grant
	e.forget(b, c)
	e.await("a lease to run out and the key to be granted to another", 4*e.short+patience,
		func() (ok bool) {
			var err error
			g, err = b.TryAcquire(e.ctx, c)
			if err != nil && !errors.Is(err, backend.ErrHeld) {
				e.Fatalf("TryAcquire of a key that is held or free = %v", err)
			}
			return err == nil
		})
	return g
}

// ranOut waits until c's lease is over, by asking with others.
func (e *env) ranOut(b backend.Backend, c backend.Claim) {
	e.Helper()
	probe := e.claim(c.Key)
	e.takeOver(b, probe)
	e.release(b, probe)
}
