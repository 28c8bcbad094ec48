package backendtest

import (
	"errors"

	"github.com/holdfast-go/holdfast/backend"
)

var (
	shared    = backend.Capabilities{Shared: true}
	permit    = backend.Capabilities{Permit: true}
	reentrant = backend.Capabilities{Reentrant: true}
)

var modeRules = []rule{
	{
		name: "shared/together", run: sharedTogether, needs: shared,
		why: "Readers hold together, and a writer with nobody.",
	},
	{
		name: "shared/own-lease", run: sharedOwnLease, needs: shared,
		why: "Each reader has a lease of its own. With one lease for all, a dead reader is kept " +
			"alive by the others, and the" +
			" writer never gets in.",
	},
	{
		name: "permit/limit", run: permitLimit, needs: permit,
		why: "A semaphore admits as many as its limit, and one more when one leaves.",
	},
	{
		name: "permit/limits-differ", run: permitLimitsDiffer, needs: permit,
		why: "Two limits for one key are a mistake in a program: ErrMismatch at once, and " +
			"nothing granted (Redisson 3.18.1" +
			" overwrote one with the other).",
	},
	{
		name: "modes/exclude", run: modesExclude, needs: backend.Capabilities{
			Shared: true,
			Permit: true,
		},
		why: "Readers, permits and exclusive holders exclude each other, whoever comes first.",
	},
	{
		name: "modes/tokens", run: modesTokens, needs: backend.Capabilities{
			Shared:  true,
			Fencing: true,
		},
		why: "A reader passes its token on when it writes what it derived: those of holders " +
			"together differ, and a writer's" +
			" is above all before it.",
	},
	{
		name: "reentrant/same-owner", run: reentrantOwner, needs: reentrant,
		why: "The same owner enters again, others wait, and the key is free when every " +
			"hold is released.",
	},
	{
		name: "reentrant/repeat", run: reentrantRepeat, needs: reentrant,
		why: "A repeated attempt of one hold is one hold. A counter per owner counts lost " +
			"replies too, and the lock is held for ever.",
	},
	{
		name: "reentrant/tombstone", run: reentrantTombstone, needs: reentrant,
		why: "A tombstone refuses a hold, not its owner: that one comes again with another hold.",
	},
	{
		name: "reserve/apart", run: reserveApart, needs: fencing,
		why: "Tokens that a grant has reserved are its alone: it gives them to those it shares " +
			"the lock with, one after another.",
	},
}

// mode returns a fresh claim in a mode.
func (e *env) mode(key string, m backend.Mode, limit int) backend.Claim {
	c := e.claim(key)
	c.Mode, c.Limit = m, limit
	return c
}

// covers: W15
func sharedTogether(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	readers := []backend.Claim{
		e.mode(key, backend.Shared, 0), e.mode(key, backend.Shared, 0),
		e.mode(key, backend.Shared, 0),
	}
	for i, c := range readers {
		e.acquire([]backend.Backend{a, b}[i%2], c)
	}
	for i, c := range readers {
		e.held(b, e.claim(key))
		e.release([]backend.Backend{b, a}[i%2], c)
	}
	writer := e.claim(key)
	e.acquire(a, writer)
	e.held(b, e.mode(key, backend.Shared, 0))
	e.release(a, writer)
	e.free(b, key)
}

// covers: B15
func sharedOwnLease(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	dead, alive := e.mode(key, backend.Shared, 0), e.mode(key, backend.Shared, 0)
	dead.TTL = e.short
	e.acquire(a, dead)
	e.acquire(b, alive)
	for range 2 {
		e.renewed(b, alive)
		e.pause(e.short)
	}
	e.held(a, e.claim(key))
	e.release(b, alive)
	e.takeOver(a, e.claim(key))
	e.lost("Renew by the reader whose lease ran out", a.Renew(e.ctx, dead))
}

// covers: Q12
func permitLimit(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	const limit = 3
	var holds []backend.Claim
	for range limit {
		c := e.mode(key, backend.Permit, limit)
		e.acquire(a, c)
		holds = append(holds, c)
	}
	e.held(b, e.mode(key, backend.Permit, limit))
	e.held(b, e.claim(key))
	if _, err := b.TryAcquire(e.ctx, holds[0]); err != nil {
		e.Errorf("repeat of a granted permit = %v", err)
	}
	e.release(b, holds[1])
	next := e.mode(key, backend.Permit, limit)
	e.acquire(b, next)
	e.held(a, e.mode(key, backend.Permit, limit))
}

// covers: I9
func permitLimitsDiffer(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	first := e.mode(key, backend.Permit, 3)
	e.acquire(a, first)
	for _, limit := range []int{1, 2, 4, 1 << 20} {
		c := e.mode(key, backend.Permit, limit)
		_, err := b.TryAcquire(e.ctx, c)
		if err == nil {
			e.forget(b, c)
			e.broken("a permit with limit %d beside one of 3 was granted", limit)
		}
		e.is("a permit with another limit than that of the holder", err, backend.ErrMismatch)
		var mismatch *backend.MismatchError
		if errors.As(err, &mismatch) && (mismatch.InUse != 3 || mismatch.Asked != limit) {
			e.Errorf("a permit with limit %d beside one of 3: %v", limit, err)
		}
	}
	e.release(a, first)
	other := e.mode(key, backend.Permit, 1) // nobody uses the key now, so any limit will do
	e.acquire(b, other)
	e.held(a, e.mode(key, backend.Permit, 1))
}

// covers: Q12
func modesExclude(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	modes := []backend.Claim{
		e.claim(key), e.mode(key, backend.Shared, 0),
		e.mode(key, backend.Permit, 2),
	}
	for _, first := range modes {
		first.Owner = backend.NewOwner()
		e.acquire(a, first)
		for _, second := range modes {
			second.Owner = backend.NewOwner()
			if second.Mode != first.Mode {
				e.held(b, second)
			}
		}
		e.release(a, first)
	}
}

// covers: K6
func modesTokens(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	one, two := e.mode(key, backend.Shared, 0), e.mode(key, backend.Shared, 0)
	last := e.above(e.acquire(a, one).Token, e.acquire(b, two))
	e.release(a, one)
	e.release(b, two)
	e.above(last, e.acquire(a, e.claim(key)))
}

// enters returns a fresh hold of owner.
func (e *env) enters(key, owner string) backend.Claim {
	c := e.claim(key)
	c.Owner, c.Hold, c.Reentrant = owner, backend.NewOwner(), true
	return c
}

// covers: G3
func reentrantOwner(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	owner := e.prefix + "owner; of\nmany words"
	first, again := e.enters(key, owner), e.enters(key, owner)
	token := e.acquire(a, first).Token
	if g := e.acquire(b, again); g.Token != token {
		e.Errorf("entered again with token %d, want that of the first hold, %d", g.Token, token)
	}
	e.held(a, e.enters(key, e.prefix+"other"))
	plain := e.claim(key)
	plain.Owner = owner // its name alone is not enough
	e.held(a, plain)
	e.release(a, first)
	e.held(a, e.enters(key, e.prefix+"other"))
	e.renewed(a, again)
	e.lost("Renew of the hold that was released", a.Renew(e.ctx, first))
	e.release(b, again)
	e.free(a, key)
}

// covers: A10
func reentrantRepeat(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	first, again := e.enters(key, e.prefix+"owner"), e.enters(key, e.prefix+"owner")
	for range 3 {
		e.acquire(a, first)
		e.acquire(b, again)
	}
	e.release(a, again)
	e.lost("second Release", release(e.ctx, a, again))
	e.held(b, e.claim(key))
	e.release(b, first)
	e.free(a, key)
}

// covers: A4, A10
func reentrantTombstone(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	gone, stays := e.enters(key, e.prefix+"owner"), e.enters(key, e.prefix+"owner")
	e.lost("Release before any attempt landed", release(e.ctx, a, gone))
	e.acquire(b, stays)
	e.tombstoned(a, gone)
	e.release(b, stays)
	e.free(a, key)
}

// covers: K7
func reserveApart(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	var next uint64
	for i, want := range []int{1, 7, 0, backend.MaxReserve, 2, 0} {
		c := e.claim(key)
		c.Reserve = want
		g := e.acquire([]backend.Backend{a, b}[i%2], c)
		if g.Token < next {
			e.broken("granted token %d, which the grant before had reserved up to %d", g.Token,
				next-1)
			e.FailNow()
		}
		if g.Reserved < 0 || g.Reserved > max(want, 1) {
			e.Errorf("%d tokens reserved, of %d that were asked for", g.Reserved, want)
		}
		if again := e.acquire(b, c); again.Token != g.Token || again.Reserved != g.Reserved {
			e.Errorf("a repeat has %d tokens from %d, the grant %d from %d", again.Reserved,
				again.Token, g.Reserved, g.Token)
		}
		next = g.Token + uint64(max(g.Reserved, 1))
		e.release(a, c)
	}
}
