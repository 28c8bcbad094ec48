package backendtest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

var leftoverRules = []rule{
	{
		name: "locker/leftover", run: nothingLeft,
		why: "When the last Unlock has returned and nobody of the process waits, nothing of it " +
			"is in the store: the next" +
			" process gets the key at once, also if this one has ended without Close.",
	},
	{
		name: "locker/leftover/readers", run: readersGiveUp,
		needs: backend.Capabilities{Shared: true, Inspect: true},
		why:   "Readers that have given up stand in nobody's way, however many they were.",
	},
}

// readersGiveUp has many readers of one client wait, each with a place of its own, and give up at
// once. When all have returned, nothing of them is in the store.
//
// covers: W13, W7
func readersGiveUp(e *env) {
	readers := 150
	if slowLeases(e.caps) {
		readers = 100
	}
	b := e.open()
	// Their places in the queue do not lapse here.
	patient := locker.Config{Wait: waiting.Config{Fallback: 10 * time.Minute}}
	l, other := e.locker(b, patient), e.locker(e.open(), locker.Config{})
	key := e.key("k")
	g := e.lock(other, key)
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	back := make(chan error, readers)
	for range readers {
		go func() {
			_, err := l.Lock(ctx, key, locker.Shared())
			back <- err
		}()
	}
	e.await("half of the readers wait", 3*time.Minute, func() bool {
		state, err := b.Inspect(e.ctx, key)
		return err != nil || !e.caps.Queue || len(state.Waiters) > readers/2
	})
	cancel()
	for range readers {
		if err := <-back; !errors.Is(err, context.Canceled) {
			e.Errorf("Lock of a reader that gave up = %v", err)
		}
	}
	// A busy machine's store may take a while.
	e.await("no place of readers that have gone to be left", 3*time.Minute, func() bool {
		state, err := b.Inspect(e.ctx, key)
		return err == nil && len(state.Waiters) == 0
	})
	e.unlock(g)
	next, err := other.TryLock(e.ctx, key)
	if err != nil {
		e.Fatalf("TryLock when all have gone = %v", err)
	}
	e.unlock(next)
}

// nothingLeft has one goroutine hold and another of the same client wait, so that the lease is
// handed on, or given up and taken again, or got after a wait; both unlock, and another client must
// get the key right then.
//
// covers: W13, G5
func nothingLeft(e *env) {
	rounds := 20
	if slowLeases(e.caps) {
		rounds = 8
	}
	b, direct := e.open(), e.open()
	for _, cfg := range []locker.Config{
		{},
		{Wait: waiting.Config{Passes: -1}},
		{Wait: waiting.Config{Passes: 1}},
	} {
		l := e.locker(b, cfg)
		other := e.locker(direct, locker.Config{})
		for i := range rounds {
			key := e.key("k")
			g := e.lock(l, key)
			waited := make(chan error, 2)
			for range 2 {
				go func() {
					g, err := l.Lock(e.ctx, key)
					if err == nil {
						err = g.Unlock()
					}
					waited <- err
				}()
			}
			e.pause(time.Duration(i%4) * time.Millisecond)
			e.unlock(g)
			for range 2 {
				if err := <-waited; err != nil {
					e.Errorf("Lock and Unlock behind another goroutine = %v", err)
				}
			}
			next, err := other.TryLock(e.ctx, key)
			if err != nil {
				e.Fatalf("round %d: TryLock after the last Unlock of another process = %v", i, err)
			}
			e.unlock(next)
			if e.caps.Inspect {
				if state, err := b.Inspect(e.ctx, key); err != nil ||
					len(state.Holders)+len(state.Waiters) > 0 {
					e.Errorf("round %d: %d holders and %d waiters are left, %v", i,
						len(state.Holders), len(state.Waiters), err)
				}
			}
		}
	}
}
