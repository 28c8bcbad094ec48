package backendtest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/backend"
)

var (
	queuePermit = backend.Capabilities{Queue: true, Permit: true}
	weight      = backend.Capabilities{Permit: true, Weight: true}
	queueWeight = backend.Capabilities{Queue: true, Permit: true, Weight: true}
)

var permitRules = []rule{
	{
		name: "permit/crash", run: permitCrash, needs: permit,
		why: "A holder that dies gives its permit back after its lease, whatever the others do. " +
			"(A counter without leases" +
			" shrinks with every crash: Redisson's plain semaphore.)",
	},
	{
		name: "permit/repeat", run: permitRepeat, needs: permit,
		why: "A repeat is the same permit. One that counts lost replies runs out of permits that " +
			"nobody holds.",
	},
	{
		name: "permit/mismatch-changes-nothing", run: permitMismatch, needs: permit,
		why: "A claim with a wrong limit is refused before anything is written: it takes no " +
			"place, and changes no limit.",
	},
	{
		name: "permit/limit-of-the-line", run: permitLimitOfLine, needs: queuePermit,
		why: "Those who wait for a semaphore count as well: one with another limit must not " +
			"come between.",
	},
	{
		name: "permit/limit-may-change", run: permitLimitChanges, needs: permit,
		why: "A limit belongs to those who use the key now. When nobody does, a new release of " +
			"the program may have another.",
	},
	{
		name: "permit/handed-over", run: permitHandedOver, needs: queuePermit,
		why: "A permit that is given back lets in one from the queue: not none while there is " +
			"room, and not two.",
	},
	{
		name: "permit/weights", run: permitWeights, needs: weight,
		why: "The weights of those who hold never add up to more than the limit. A weight that " +
			"counts as one lets in as many" +
			" as the limit, whatever they take.",
	},
	{
		name: "permit/weights-race", run: permitWeightsRace, needs: weight,
		why: "Whoever comes at once is counted one after the other, by its weight: two that look " +
			"before either is written" +
			" take more than there is.",
	},
	{
		name: "permit/weights-repeat", run: permitWeightsRepeat, needs: weight,
		why: "A repeat, a renewal and a late release count no weight a second time: what is " +
			"counted twice is lost for" +
			" as long as the key is in use.",
	},
	{
		name: "permit/weights-in-line", run: permitWeightsInLine, needs: queueWeight,
		why: "A heavy claim at the head of the queue waits until it fits, and nobody passes it: " +
			"else light ones that come and" +
			" go keep it out for ever.",
	},
	{
		name: "permit/weights-handed-over", run: permitWeightsHandedOver, needs: queueWeight,
		why: "A heavy hold that ends makes room for several: all that fit are let in at once, " +
			"and not one of them for it.",
	},
	{
		name: "permit/weights-crash", run: permitWeightsCrash, needs: weight,
		why: "The lease of a heavy holder that died gives back all of its weight, and not " +
			"that of others.",
	},
	{
		name: "permit/weights-shown", run: permitWeightsShown,
		needs: backend.Capabilities{Queue: true, Permit: true, Weight: true, Inspect: true},
		why:   "Two holders of a semaphore of ten that is full: whoever looks has to see why.",
	},
}

// permits returns a claim in the queue for one of so many permits.
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
		e.renewed(b, alive)
		e.pause(e.short / 2)
	}
	e.takeOver(a, e.mode(key, backend.Permit, 2))
	e.held(a, e.mode(key, backend.Permit, 2))
	e.renewed(b, alive)
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
		e.broken("a permit with another limit than that of those who use the key was granted")
	}
	e.is("TryAcquire with another limit than that of those who use the key", err,
		backend.ErrMismatch)
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
		if state, err := a.Inspect(e.ctx, key); err != nil || len(state.Holders) != 2 ||
			len(state.Waiters) != 0 {
			e.Errorf("Inspect = %+v, %v; want the two that were granted, and nobody in the queue",
				state, err)
		}
	}
	e.release(a, first)
	e.acquire(a, e.mode(key, backend.Permit, 2))
}

// covers: I9
func permitLimitOfLine(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	writer, next := e.claim(key), e.inLine(key) // whoever is first in the queue has no limit
	e.acquire(a, writer)
	e.stand(a, next, 1)
	waiter := e.permitInLine(key, 2)
	e.stand(b, waiter, 2)
	e.mismatched(a, e.permitInLine(key, 3))
	e.mismatched(a, e.mode(key, backend.Permit, 1))
	e.stand(a, e.permitInLine(key, 2), 3)
	e.release(a, writer)
	e.turn(a, next)
	e.release(a, next)
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
		if err != nil && !errors.Is(err, backend.ErrMismatch) {
			e.Fatalf("TryAcquire with another limit = %v", err)
		}
		return err == nil
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
	e.lost("Release of a claim in the queue", release(e.ctx, b, line[3]))
	e.release(a, holds[2])
	e.acquire(a, e.mode(key, backend.Permit, limit))
	e.held(a, e.mode(key, backend.Permit, limit))
}

// heavy returns a fresh claim for a permit that counts so much.
func (e *env) heavy(key string, limit, weight int) backend.Claim {
	c := e.mode(key, backend.Permit, limit)
	c.Weight = weight
	return c
}

// heavyInLine is heavy for a claim that queues.
func (e *env) heavyInLine(key string, limit, weight int) backend.Claim {
	c := e.permitInLine(key, limit)
	c.Weight = weight
	return c
}

// covers: Q12
func permitWeights(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	const limit = 6
	three, two := e.heavy(key, limit, 3), e.heavy(key, limit, 2)
	e.acquire(a, three)
	e.held(b, e.heavy(key, limit, 4))
	e.acquire(b, two)
	e.held(a, e.heavy(key, limit, 2))
	e.held(a, e.claim(key))
	e.mismatched(a, e.heavy(key, limit-1, 1))
	one := e.heavy(key, limit, 0) // counts as one
	e.acquire(a, one)
	e.held(b, e.heavy(key, limit, 1))
	e.release(b, three)
	e.held(a, e.heavy(key, limit, 4))
	e.acquire(b, e.heavy(key, limit, 2))
	e.acquire(b, e.heavy(key, limit, 1))
	e.held(a, e.heavy(key, limit, 1))

	full := e.key("full")
	all := e.heavy(full, limit, limit)
	e.acquire(a, all)
	e.held(b, e.heavy(full, limit, 1))
	e.release(a, all)
	e.acquire(b, e.heavy(full, limit, 1))
	e.held(a, e.heavy(full, limit, limit))

	most := e.key("most") // two of these are more than an int of 32 bits can be
	e.acquire(a, e.heavy(most, backend.MaxPermits, 1<<30))
	e.held(b, e.heavy(most, backend.MaxPermits, 1<<30))
}

// covers: Q12
func permitWeightsRace(e *env) {
	clients := []backend.Backend{e.open(), e.open(), e.open()}
	const limit = 7
	rounds := 5
	if e.h.Bubble {
		rounds = 20
	}
	for round := range rounds {
		key := e.key(fmt.Sprint("k", round))
		claims := make([]backend.Claim, 12)
		granted, unknown := make([]bool, len(claims)), make([]bool, len(claims))
		for i := range claims {
			claims[i] = e.heavy(key, limit, 1+(i+round)%3)
			e.forget(clients[i%3], claims[i])
		}
		parallel(len(claims), func(i int) {
			_, err := clients[i%3].TryAcquire(e.ctx, claims[i])
			granted[i], unknown[i] = err == nil, !answer(err)
			if !granted[i] && !unknown[i] {
				e.is("TryAcquire of a permit", err, backend.ErrHeld)
			}
		})
		sum := 0
		for i, c := range claims {
			if granted[i] {
				sum += c.Weight
			}
		}
		if sum > limit {
			e.broken("of a limit of %d, %d were granted at once", limit, sum)
		}
		if sum+3 <= limit && !slices.Contains(unknown, true) {
			e.Errorf("of a limit of %d only %d were granted, where none asked for more than 3",
				limit, sum)
		}
	}
}

// covers: A10, A3
func permitWeightsRepeat(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	const limit = 5
	first, second := e.heavy(key, limit, 2), e.heavy(key, limit, 2)
	for range 3 {
		e.acquire(a, first)
		e.acquire(b, second)
		for _, c := range []backend.Claim{first, second} {
			e.renewed(b, c)
		}
	}
	e.held(b, e.heavy(key, limit, 2))
	e.release(b, first)
	e.lost("Release of what was released", release(e.ctx, a, first))
	e.held(b, e.heavy(key, limit, 4))
	e.acquire(a, e.heavy(key, limit, 3))
	e.held(b, e.heavy(key, limit, 1))
}

// covers: W15
func permitWeightsInLine(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	const limit = 4
	two, one := e.heavy(key, limit, 2), e.heavy(key, limit, 1)
	e.acquire(a, two)
	e.acquire(b, one)
	all, light, later := e.heavyInLine(key, limit, limit), e.heavyInLine(key, limit, 1),
		e.heavyInLine(key, limit, 1)
	all.WaiterTTL = 4 * e.long // its place outlasts the leases
	e.stand(b, all, 1)
	e.stand(a, light, 2)
	last := e.long + patience
	if slowLeases(e.caps) {
		last = 10 * e.long // there a lease may be one that longer ones share
	}
	lighter := all
	lighter.Weight = 1 // a repeat changes no weight
	for what, held := range map[string]backend.HeldError{
		// there is room for it, but not before the one that waits
		"beside the queue":    e.held(a, e.heavy(key, limit, 1)),
		"repeated as lighter": e.stand(b, lighter, 1),
	} {
		if held.RetryAfter < 0 || held.RetryAfter > last {
			e.Errorf("a claim %s is told to ask again after %v, want no later than the "+
				"holders' leases end", what, held.RetryAfter)
		}
	}
	e.stand(b, later, 3)
	e.release(a, two)
	e.stand(a, light, 2)
	e.stand(b, all, 1)
	e.release(b, one)
	e.turn(b, all)
	e.stand(b, later, 2)
	e.stand(a, light, 1)

	// To leave the queue counts for nothing.
	e.lost("Release of a claim in the queue", release(e.ctx, a, light))
	e.stand(b, later, 1)
	e.release(b, all)
	e.turn(b, later)
	e.acquire(a, e.heavy(key, limit, limit-1))
	e.held(a, e.heavy(key, limit, 1))
}

// covers: W6, W9
func permitWeightsHandedOver(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	const limit = 5
	all := e.heavy(key, limit, limit)
	e.acquire(a, all)
	var line []backend.Claim
	for i, weight := range []int{1, 2, 1, 2, 1} {
		c := e.heavyInLine(key, limit, weight)
		e.stand(b, c, i+1)
		line = append(line, c)
	}
	e.release(a, all)
	e.stand(b, line[4], 2) // it would fit, but the one before it does not
	e.stand(b, line[3], 1)
	e.held(a, e.heavy(key, limit, 1))
	for _, c := range line[:3] {
		e.turn(b, c)
	}
	e.release(b, line[2])
	e.turn(b, line[3])
	e.stand(b, line[4], 1)
	e.lost("Release of a claim in the queue", release(e.ctx, b, line[4]))
	e.release(a, line[1])
	e.acquire(a, e.heavy(key, limit, 2))
	e.held(a, e.heavy(key, limit, 1))
}

// covers: B15, G6
func permitWeightsCrash(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	const limit = 5
	dead, alive := e.heavy(key, limit, 3), e.heavy(key, limit, 2)
	dead.TTL = e.short
	e.acquire(a, dead)
	e.acquire(b, alive)
	e.takeOver(a, e.heavy(key, limit, 3))
	e.held(a, e.heavy(key, limit, 1))
	e.renewed(b, alive)
	e.lost("Renew by the one whose lease ran out", a.Renew(e.ctx, dead))
	e.lost("Release by the one whose lease ran out", release(e.ctx, a, dead))
	e.held(a, e.heavy(key, limit, 1))
}

func permitWeightsShown(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	const limit = 10
	e.acquire(a, e.heavy(key, limit, 7))
	e.acquire(a, e.heavy(key, limit, 3))
	e.stand(a, e.heavyInLine(key, limit, 1), 1)
	e.stand(a, e.heavyInLine(key, limit, 5), 2)
	state, err := b.Inspect(e.ctx, key)
	var holders, waiters []int
	for _, h := range state.Holders {
		holders = append(holders, max(h.Weight, 1))
	}
	for _, w := range state.Waiters {
		waiters = append(waiters, max(w.Weight, 1))
	}
	slices.Sort(holders)
	if err != nil || !slices.Equal(holders, []int{3, 7}) || !slices.Equal(waiters, []int{1, 5}) {
		e.Errorf("Inspect = %+v, %v; want weights 3 and 7, and 1 and 5 in the queue", state, err)
	}
}
