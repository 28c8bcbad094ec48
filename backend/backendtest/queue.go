package backendtest

import (
	"errors"

	"github.com/holdfast-go/holdfast/backend"
)

var queue = backend.Capabilities{Queue: true}

var queueRules = []rule{
	{
		name: "queue/in-order", run: queueInOrder, needs: queue,
		why: "Who stands in line is served in the order of coming, however often and in what order those in line ask.",
	},
	{
		name: "queue/no-overtaking", run: queueNoOvertaking, needs: queue,
		why: "A claim that does not wait must not overtake those that do, or a busy key starves them.",
	},
	{
		name: "queue/leaves", run: queueLeaves, needs: queue,
		why: "Whoever is cancelled leaves the line: a dead entry at its head blocks everybody (Redisson#1104, etcd 3.4#10153).",
	},
	{
		name: "queue/granted-while-leaving", run: queueGrantedWhileLeaving, needs: queue,
		why: "A waiter that is cancelled in the moment of its grant gives the grant on; otherwise nobody holds it for a lease.",
	},
}

// inLine returns a fresh claim that stands in line.
func (e *env) inLine(key string) backend.Claim {
	c := e.claim(key)
	c.Queue = true
	return c
}

// covers: W6, W10
func queueInOrder(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.inLine(key)
	e.acquire(a, holder)
	var line []backend.Claim
	for i := range 4 {
		c := e.inLine(key)
		e.forget(b, c)
		if held := e.held(b, c); held.Position != i+1 {
			e.Errorf("position %d, want %d", held.Position, i+1)
		}
		line = append(line, c)
	}
	e.release(a, holder)
	for i := range line {
		for j := len(line) - 1; j > i; j-- {
			e.held(b, line[j]) // asks before the one in front of it
		}
		e.await("the head of the line to be granted", patience, func() bool {
			_, err := b.TryAcquire(e.ctx, line[i])
			return err == nil
		})
		e.release(b, line[i])
	}
}

// covers: W11
func queueNoOvertaking(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.inLine(key)
	e.acquire(a, holder)
	waiter := e.inLine(key)
	e.forget(b, waiter)
	e.held(b, waiter)
	e.release(a, holder)
	e.held(a, e.claim(key))
	if _, err := b.TryAcquire(e.ctx, waiter); err != nil {
		e.Errorf("TryAcquire by the only one in line = %v", err)
	}
}

// covers: W5, W8, X11
func queueLeaves(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.inLine(key)
	e.acquire(a, holder)
	gone, stays := e.inLine(key), e.inLine(key)
	e.forget(b, stays)
	e.held(b, gone)
	e.held(b, stays)
	e.lost("Release of a claim in line", b.Release(e.ctx, gone))
	e.release(a, holder)
	e.await("the next in line to be granted", patience, func() bool {
		_, err := b.TryAcquire(e.ctx, stays)
		return err == nil
	})
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
	e.forget(b, next)
	e.held(b, gone)
	e.held(b, next)
	e.release(a, holder) // may hand the key to gone
	if err := b.Release(e.ctx, gone); err != nil && !errors.Is(err, backend.ErrLost) {
		e.Errorf("Release = %v", err)
	}
	e.await("the grant to be passed on", patience, func() bool {
		_, err := b.TryAcquire(e.ctx, next)
		return err == nil
	})
}
