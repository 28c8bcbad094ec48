package backendtest

import (
	"errors"

	"github.com/holdfast-go/holdfast/backend"
)

var (
	queue        = backend.Capabilities{Queue: true}
	queueReaders = backend.Capabilities{Queue: true, Shared: true}
)

var queueRules = []rule{
	{
		name: "queue/in-order", run: queueInOrder, needs: queue,
		why: "A claim that is queued is served in the order of coming, however often and in what " +
			"order those in the queue ask.",
	},
	{
		name: "queue/no-overtaking", run: queueNoOvertaking, needs: queue,
		why: "A claim that does not wait must not overtake those that do, or a busy key " +
			"starves them.",
	},
	{
		name: "queue/lapsed", run: queueLapsed, needs: queue,
		why: "A place whose claim sent no heartbeat is passed over, and its claim goes to the end.",
	},
	{
		name: "queue/refreshed", run: queueRefreshed, needs: queue,
		why: "A waiter that lives keeps its place for as long as it asks (Redisson#3004 took " +
			"live waiters for dead).",
	},
	{
		name: "queue/leaves", run: queueLeaves, needs: queue,
		why: "A claim that is cancelled leaves the queue: a dead entry at its head blocks " +
			"everybody (etcd 3.4#10153).",
	},
	{
		name: "queue/granted-while-leaving", run: queueGrantedWhileLeaving, needs: queue,
		why: "A waiter that is cancelled in the moment of its grant gives the grant on; " +
			"otherwise nobody holds it for a lease.",
	},
	{
		name: "queue/late-attempt", run: queueLateAttempt, needs: queue,
		why: "A claim that left must not be queued again, when a copy of its attempt lands late.",
	},
	{
		name: "queue/readers-and-writer", run: queueReadersAndWriter, needs: queueReaders,
		why: "Readers next to each other are let in together, a writer alone, and readers behind " +
			"a writer wait for it: a" +
			" stream of readers must not starve it.",
	},
}

// inLine returns a fresh claim that is queued and is not taken for dead while a rule runs.
func (e *env) inLine(key string) backend.Claim {
	c := e.claim(key)
	c.Queue, c.WaiterTTL = true, e.long
	return c
}

// briefly returns a fresh claim that is queued and is soon taken for dead.
func (e *env) briefly(key string) backend.Claim {
	c := e.inLine(key)
	c.WaiterTTL = e.short
	return c
}

// stand must be refused at a place in the queue.
func (e *env) stand(b backend.Backend, c backend.Claim, place int) backend.HeldError {
	e.Helper()
	e.forget(b, c)
	held := e.refused(b, c)
	if held.Position != place {
		e.Fatalf("place %d in the queue, want %d", held.Position, place)
	}
	return held
}

// turn must find c let in.
func (e *env) turn(b backend.Backend, c backend.Claim) backend.Grant {
	e.Helper()
	g, err := b.TryAcquire(e.ctx, c)
	if err != nil {
		e.Fatalf("TryAcquire by the next in the queue = %v, want the grant that was handed to it",
			err)
	}
	return g
}

// covers: W6, W10
func queueInOrder(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.inLine(key)
	e.acquire(a, holder)
	var line []backend.Claim
	for i := range 4 {
		line = append(line, e.inLine(key))
		e.stand(b, line[i], i+1)
	}
	for _, i := range []int{3, 1, 2, 0, 3} { // asking again changes nothing
		e.stand(a, line[i], i+1)
	}
	e.release(a, holder)
	for i := range line {
		for j := len(line) - 1; j > i; j-- {
			e.stand(b, line[j], j-i) // asks before the one in front of it
		}
		e.turn(b, line[i])
		e.release(b, line[i])
	}
	e.free(a, key)
}

// covers: W11
func queueNoOvertaking(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.claim(key)
	e.acquire(a, holder)
	waiter, second := e.inLine(key), e.inLine(key)
	e.stand(b, waiter, 1)
	e.refused(a, e.claim(key))
	e.release(a, holder)
	e.refused(a, e.claim(key))
	e.stand(a, second, 1)
	e.turn(b, waiter)
	e.release(b, waiter)
	e.refused(a, e.claim(key))
	e.turn(a, second)
}

// covers: W5, W6
func queueLapsed(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.acquire(a, e.claim(key))
	silent, alive := e.inLine(key), e.inLine(key)
	silent.WaiterTTL = e.short
	e.stand(b, silent, 1)
	e.stand(b, alive, 2)
	e.await("a place to lapse", 4*e.short+patience, func() bool {
		return e.refused(b, alive).Position == 1
	})
	e.stand(b, silent, 2)
	if !e.caps.Inspect {
		return
	}
	state, err := a.Inspect(e.ctx, key)
	if err != nil || len(state.Waiters) != 2 || state.Waiters[0].Owner != alive.Owner ||
		state.Waiters[1].Owner != silent.Owner {
		e.Errorf("Inspect = %+v, %v; want two waiters, the one that lapsed behind", state.Waiters,
			err)
	}
}

// covers: W6
func queueRefreshed(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.acquire(a, e.claim(key))
	waiter, next := e.inLine(key), e.inLine(key)
	waiter.WaiterTTL = 4 * e.short // a machine that stalls is no dead waiter
	e.stand(b, waiter, 1)
	e.stand(b, next, 2)
	for range 12 {
		e.pause(e.short / 2)
		e.stand(b, waiter, 1)
	}
	e.stand(b, next, 2)
}

// covers: W5, W8, X11
func queueLeaves(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.inLine(key)
	e.acquire(a, holder)
	gone, stays, middle := e.inLine(key), e.inLine(key), e.inLine(key)
	e.stand(b, gone, 1)
	e.stand(b, middle, 2)
	e.stand(b, stays, 3)
	e.lost("Release of a claim in the queue", release(e.ctx, b, middle))
	e.lost("Release of the first in the queue", release(e.ctx, b, gone))
	e.stand(b, stays, 1)
	e.release(a, holder)
	e.turn(b, stays)
	e.release(b, stays)
	e.free(a, key)
}

// covers: W7, W9
func queueGrantedWhileLeaving(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.inLine(key)
	e.acquire(a, holder)
	gone, next := e.inLine(key), e.inLine(key)
	e.stand(b, gone, 1)
	e.stand(b, next, 2)
	e.release(a, holder) // hands the key to gone
	if _, err := b.Release(e.ctx, gone); err != nil && !errors.Is(err, backend.ErrLost) {
		e.Errorf("Release = %v", err)
	}
	e.turn(b, next)
}

// covers: A4, W8, X11
func queueLateAttempt(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.claim(key)
	e.acquire(a, holder)
	gone := e.inLine(key)
	e.stand(b, gone, 1)
	e.lost("Release of a claim in the queue", release(e.ctx, b, gone))
	e.tombstoned(b, gone)
	e.stand(b, e.inLine(key), 1)
}

// covers: W15, W14
func queueReadersAndWriter(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.claim(key)
	e.acquire(a, holder)
	reader := func() backend.Claim {
		c := e.inLine(key)
		c.Mode = backend.Shared
		return c
	}
	one, two, writer, late := reader(), reader(), e.inLine(key), reader()
	for i, c := range []backend.Claim{one, two, writer, late} {
		e.stand(b, c, i+1)
	}
	e.release(a, holder)
	if e.caps.Inspect { // both at once, before either has asked
		if state, err := a.Inspect(e.ctx, key); err != nil || len(state.Holders) != 2 ||
			len(state.Waiters) != 2 {
			e.Errorf("Inspect = %+v, %v; want two readers let in together", state, err)
		}
	}
	e.turn(b, one)
	e.turn(b, two)
	e.stand(b, late, 2)
	e.refused(b, e.mode(key, backend.Shared, 0)) // would fit, but overtakes
	e.release(b, one)
	e.stand(b, writer, 1)
	e.release(b, two)
	e.turn(b, writer)
	e.stand(b, late, 1)
	e.release(b, writer)
	e.turn(b, late)
}
