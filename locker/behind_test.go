package locker_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

var strict = locker.Config{TTL: 30 * time.Second, Wait: waiting.Config{Passes: -1}}

// inTurn has n goroutines stand behind a hold in the local line, each holding for so long.
func inTurn(t *testing.T, l *locker.Client[struct{}], n int, held time.Duration) {
	t.Helper()
	g := mustLock(t, l, "k")
	var all sync.WaitGroup
	var order []int
	for i := range n {
		all.Go(func() {
			g := mustLock(t, l, "k")
			order = append(order, i)
			time.Sleep(held)
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(10 * time.Millisecond)
	}
	began := time.Now()
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	all.Wait()
	if d, want := time.Since(began), time.Duration(n)*held; d != want {
		t.Errorf("%d holds of %v took %v", n, held, d)
	}
	if !slices.IsSorted(order) || len(order) != n {
		t.Errorf("they held in order %v", order)
	}
}

// The question for the next comes behind the release of a short hold, and so finds the key free. A long hold is waited for in
// the store's line, and so is any hold where there is no line: who asks behind its own release would always win.
// covers: W5
func TestQuestionBehindRelease(t *testing.T) {
	for name, c := range map[string]struct {
		line    bool
		held    time.Duration
		refused int
	}{
		"short":         {true, 500 * time.Microsecond, 1}, // the one of the agent that finds the first hold
		"long":          {true, 2 * time.Millisecond, 3},
		"no line":       {false, 500 * time.Microsecond, 1 + 2},
		"long, no line": {false, 2 * time.Millisecond, 1 + 2},
	} {
		b := hook()
		if !c.line {
			b = plain()
		}
		var mu sync.Mutex
		var refused, released []time.Time
		note := func(list *[]time.Time) {
			mu.Lock()
			defer mu.Unlock()
			*list = append(*list, time.Now())
		}
		b.acquire = func(ctx context.Context, claim backend.Claim) (backend.Grant, error) {
			g, err := b.Backend.TryAcquire(ctx, claim)
			if err != nil {
				note(&refused)
			}
			return g, err
		}
		b.release = func(ctx context.Context, claim backend.Claim) error {
			note(&released)
			return b.Backend.Release(ctx, claim)
		}
		bubble(t, b, strict, func(t *testing.T, l *locker.Client[struct{}]) {
			inTurn(t, l, 3, c.held)
			early := slices.DeleteFunc(refused, func(at time.Time) bool { // which of two that are sent together comes first is open
				return c.line && slices.ContainsFunc(released, at.Equal)
			})
			if len(early) != c.refused || len(released) != 4 {
				t.Errorf("%s: %d questions refused before a release, %d releases; want %d and 4", name, len(early), len(released), c.refused)
			}
			wantHeld(t, b, "k", false)
		})
	}
}

// A lease that is lost, and so never given back, holds nobody up.
func TestQuestionBehindLoss(t *testing.T) {
	b := hook()
	var silent atomic.Bool
	b.release = func(ctx context.Context, claim backend.Claim) error {
		if silent.Load() {
			return errSilence
		}
		return b.Backend.Release(ctx, claim)
	}
	bubble(t, b, strict, func(t *testing.T, l *locker.Client[struct{}]) {
		inTurn(t, l, 2, time.Minute) // each is renewed, and waited for in line
		silent.Store(true)
		g := mustLock(t, l, "k")
		next := make(chan *locker.Guard[struct{}])
		for range 2 {
			go func() { next <- mustLock(t, l, "k") }()
		}
		time.Sleep(time.Second)
		go func() { _ = g.Unlock() }() // is not confirmed: the lease runs out
		second := <-next
		silent.Store(false)
		if err := second.Unlock(); err != nil {
			t.Error(err)
		}
		if err := (<-next).Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// At any moment somebody comes, unlocks or loses patience: one at a time is inside, every Unlock is confirmed, and nothing is
// left behind.
// covers: W7, W8, G1
func TestStrictStorm(t *testing.T) {
	for seed := range uint64(20) {
		b := membackend.New()
		bubble(t, b, strict, func(t *testing.T, l *locker.Client[struct{}]) {
			var inside atomic.Int32
			var all sync.WaitGroup
			for i := range uint64(20) {
				rng := rand.New(rand.NewPCG(seed, i))
				all.Go(func() {
					for range 20 {
						g, err := l.Lock(t.Context(), "k", locker.WaitLimit(time.Duration(rng.Int64N(20e6))+1))
						if err != nil {
							continue
						}
						if inside.Add(1) > 1 {
							t.Error("two inside")
						}
						time.Sleep(time.Duration(rng.Int64N(2e6)) + 1)
						inside.Add(-1)
						if err := g.Unlock(); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			synctest.Wait()
			if state, err := b.Inspect(t.Context(), "k"); err != nil || len(state.Holders)+len(state.Waiters) > 0 {
				t.Errorf("left behind: %+v, %v", state, err)
			}
		})
	}
}
