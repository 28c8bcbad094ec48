package backendtest

import (
	"github.com/holdfast-go/holdfast/backend"
)

var queuePermit = backend.Capabilities{Queue: true, Permit: true}

var permitRules = []rule{
	{
		name: "permit/crash", run: permitCrash, needs: permit,
		why: "A holder that dies gives its permit back after its lease, whatever the others do. (A counter without leases" +
			" shrinks with every crash: Redisson's plain semaphore.)",
	},
	{
		name: "permit/repeat", run: permitRepeat, needs: permit,
		why: "A repeat is the same permit. One that counts lost replies runs out of permits that nobody holds.",
	},
	{
		name: "permit/mismatch-changes-nothing", run: permitMismatch, needs: permit,
		why: "A claim with a wrong limit is refused before anything is written: it takes no place, and changes no limit.",
	},
	{
		name: "permit/limit-of-the-line", run: permitLimitOfLine, needs: queuePermit,
		why: "Those who wait for a semaphore count as well: one with another limit must not come between.",
	},
	{
		name: "permit/limit-may-change", run: permitLimitChanges, needs: permit,
		why: "A limit belongs to those who use the key now. When nobody does, a new release of the program may have another.",
	},
	{
		name: "permit/handed-over", run: permitHandedOver, needs: queuePermit,
		why: "A permit that is given back lets in one from the line: not none while there is room, and not two.",
	},
}

// permits returns a claim in line for one of so many permits.
func (e *env) permitInLine(key string, limit int) backend.Claim {
	c := e.inLine(key)
	c.Mode, c.Limit = backend.Permit, limit
	return c
}

// covers: B15, D9, G6
func permitCrash(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	dead, alive := e.mode(key, backend.Permit, 2), e.mode(key, backend.Permit, 2)
	dead.TTL = e.short
	e.acquire(a, dead)
	e.acquire(b, alive)
	for range 2 {
		if err := b.Renew(e.ctx, alive); err != nil {
			e.Fatalf("Renew by the holder that lives = %v", err)
		}
		e.pause(e.short / 2)
	}
	e.takeOver(a, e.mode(key, backend.Permit, 2))
	e.held(a, e.mode(key, backend.Permit, 2))
	if err := b.Renew(e.ctx, alive); err != nil {
		e.Errorf("Renew by the holder that lives = %v", err)
	}
	e.lost("Renew by the one whose lease ran out", a.Renew(e.ctx, dead))
}

// covers: A10, A3
func permitRepeat(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	first := e.mode(key, backend.Permit, 3)
	for range 4 {
		e.acquire(a, first)
	}
	second, third := e.mode(key, backend.Permit, 3), e.mode(key, backend.Permit, 3)
	e.acquire(b, second)
	e.acquire(b, third)
	e.acquire(a, first)
	e.held(b, e.mode(key, backend.Permit, 3))
	e.release(a, first)
	e.acquire(a, e.mode(key, backend.Permit, 3))
	e.held(b, e.mode(key, backend.Permit, 3))
}

// mismatched must refuse c because of its limit.
func (e *env) mismatched(b backend.Backend, c backend.Claim) {
	e.Helper()
	_, err := b.TryAcquire(e.ctx, c)
	if err == nil {
		e.forget(b, c)
	}
	e.is("TryAcquire with another limit than that of those who use the key", err, backend.ErrMismatch)
}

// covers: I9
func permitMismatch(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	first := e.mode(key, backend.Permit, 2)
	e.acquire(a, first)
	for _, limit := range []int{1, 3} {
		e.mismatched(b, e.mode(key, backend.Permit, limit))
		if e.caps.Queue {
			e.mismatched(b, e.permitInLine(key, limit))
		}
	}
	e.acquire(b, e.mode(key, backend.Permit, 2))
	e.held(b, e.mode(key, backend.Permit, 2))
	if e.caps.Inspect {
		if state, err := a.Inspect(e.ctx, key); err != nil || len(state.Holders) != 2 || len(state.Waiters) != 0 {
			e.Errorf("Inspect = %+v, %v; want the two that were granted, and nobody in line", state, err)
		}
	}
	e.release(a, first)
	e.acquire(a, e.mode(key, backend.Permit, 2))
}

// covers: I9
func permitLimitOfLine(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	writer := e.claim(key)
	e.acquire(a, writer)
	waiter := e.permitInLine(key, 2)
	e.stand(b, waiter, 1)
	e.mismatched(a, e.permitInLine(key, 3))
	e.mismatched(a, e.mode(key, backend.Permit, 1))
	e.stand(a, e.permitInLine(key, 2), 2)
	e.release(a, writer)
	e.turn(b, waiter)
}

// covers: I9
func permitLimitChanges(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	for _, limit := range []int{2, 5, 1} {
		c := e.mode(key, backend.Permit, limit)
		e.acquire(a, c)
		e.release(a, c)
	}
	dead := e.mode(key, backend.Permit, 2)
	dead.TTL = e.short
	e.acquire(a, dead)
	next := e.mode(key, backend.Permit, 3)
	e.forget(b, next)
	e.await("the limit to go with the last lease", 2*e.short+patience, func() bool {
		_, err := b.TryAcquire(e.ctx, next)
		if err != nil {
			e.is("TryAcquire with another limit", err, backend.ErrMismatch)
		}
		return err == nil || e.Failed()
	})
}

// covers: W6, W9
func permitHandedOver(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	const limit = 3
	var holds, line []backend.Claim
	for range limit {
		c := e.mode(key, backend.Permit, limit)
		e.acquire(a, c)
		holds = append(holds, c)
	}
	for i := range 4 {
		c := e.permitInLine(key, limit)
		e.stand(b, c, i+1)
		line = append(line, c)
	}
	e.release(a, holds[1])
	e.held(a, e.mode(key, backend.Permit, limit))
	for i := 1; i < len(line); i++ {
		e.stand(b, line[i], i)
	}
	e.turn(b, line[0])
	e.release(b, line[0])
	e.release(a, holds[0])
	e.stand(b, line[3], 1)
	e.turn(b, line[2])
	e.turn(b, line[1])
	e.lost("Release of a claim in line", b.Release(e.ctx, line[3]))
	e.release(a, holds[2])
	e.acquire(a, e.mode(key, backend.Permit, limit))
	e.held(a, e.mode(key, backend.Permit, limit))
}
