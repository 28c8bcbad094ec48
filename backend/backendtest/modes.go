package backendtest

import (
	"bytes"

	"github.com/holdfast-go/holdfast/backend"
)

var (
	shared    = backend.Capabilities{Shared: true}
	permit    = backend.Capabilities{Permit: true}
	reentrant = backend.Capabilities{Reentrant: true}
	state     = backend.Capabilities{State: true}
)

var modeRules = []rule{
	{
		name: "shared/together", run: sharedTogether, needs: shared,
		why: "Readers hold together, and a writer with nobody.",
	},
	{
		name: "shared/own-lease", run: sharedOwnLease, needs: shared,
		why: "Each reader has a lease of its own. With one lease for all, a dead reader is kept alive by the others, and the" +
			" writer never gets in.",
	},
	{
		name: "permit/limit", run: permitLimit, needs: permit,
		why: "A semaphore admits as many as its limit, and one more when one leaves.",
	},
	{
		name: "permit/limits-differ", run: permitLimitsDiffer, needs: permit,
		why: "Two programs with different limits for one semaphore: neither may be admitted beyond its own limit" +
			" (Redisson 3.18.1 overwrote one with the other).",
	},
	{
		name: "reentrant/same-owner", run: reentrantOwner, needs: reentrant,
		why: "The same owner enters again, others wait, and the key is free when every hold is released.",
	},
	{
		name: "state/saved-by-holder", run: savedByHolder, needs: state,
		why: "The key's state is loaded with the lock and saved with its release, and a claim that lost the lock cannot write.",
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
	readers := []backend.Claim{e.mode(key, backend.Shared, 0), e.mode(key, backend.Shared, 0), e.mode(key, backend.Shared, 0)}
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
	e.pause(e.short + e.short/2)
	if err := b.Renew(e.ctx, alive); err != nil {
		e.Errorf("Renew by the reader that lives = %v", err)
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
	e.acquire(a, e.mode(key, backend.Permit, 3))
	e.acquire(a, e.mode(key, backend.Permit, 3))
	c := e.mode(key, backend.Permit, 1)
	if _, err := b.TryAcquire(e.ctx, c); err == nil || backend.AnswerOf(err) != backend.No {
		e.forget(b, c)
		e.Errorf("a permit of a limit of 1, while two are taken = %v, want a no", err)
	}
}

// covers: A10, G3
func reentrantOwner(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	c.Reentrant = true
	e.acquire(a, c)
	e.acquire(b, c)
	other := e.claim(key)
	other.Reentrant = true
	e.held(a, other)
	e.release(a, c)
	e.held(a, other)
	e.release(b, c)
	e.free(a, key)
}

func savedByHolder(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	load := func(client backend.Backend, want []byte) backend.Claim {
		e.Helper()
		c := e.claim(key)
		c.Load = true
		if g := e.acquire(client, c); !bytes.Equal(g.State, want) {
			e.Fatalf("loaded %q, want %q", g.State, want)
		}
		return c
	}
	c := load(a, nil)
	c.Save = []byte("one\x00")
	e.release(a, c)
	next := load(b, c.Save)
	stale := c
	stale.Save = []byte("stale")
	e.lost("Release with Save after the hold ended", a.Release(e.ctx, stale))
	e.lost("Renew with Save after the hold ended", a.Renew(e.ctx, stale))
	next.Save = []byte("two")
	if err := b.Renew(e.ctx, next); err != nil {
		e.Fatalf("Renew with Save = %v", err)
	}
	next.Save = nil
	e.release(b, next)
	e.release(a, load(a, []byte("two")))
}
