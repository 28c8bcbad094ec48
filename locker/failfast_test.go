package locker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// holdFor has l hold k for d, once, so that it knows how long that takes.
func holdFor(t *testing.T, l *locker.Client[struct{}], d time.Duration) {
	t.Helper()
	g := mustLock(t, l, "k")
	time.Sleep(d)
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}

// another is a second Client on the same store.
func another(t *testing.T, b backend.Backend, cfg locker.Config) *locker.Client[struct{}] {
	t.Helper()
	l, err := locker.New(b, locker.Bare, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// refusedAtOnce fails unless err says, without any time having passed, that the wait would have
// been in vain.
func refusedAtOnce(t *testing.T, err error, began time.Time, want locker.WouldTimeoutError) {
	t.Helper()
	wantErr(t, err, locker.ErrNotAcquired, locker.ErrWouldTimeout, backend.ErrHeld)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v: no deadline has passed", err)
	}
	if d := time.Since(began); d != 0 {
		t.Errorf("failed after %v, want at once", d)
	}
	var got *locker.WouldTimeoutError
	if !errors.As(err, &got) {
		t.Fatalf("%v is no *WouldTimeoutError", err)
	}
	if got.RetryAfter != want.RetryAfter || got.Left != want.Left ||
		got.Position != want.Position || got.Holder.Service != want.Holder.Service {
		t.Errorf("%+v, want %+v", *got, want)
	}
}

// Another process holds, and others of ours wait: each knows how long it would take.
func TestFailFastCountsTheLine(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{Service: "us"}, func(t *testing.T, l *locker.Client[struct{}]) {
		holdFor(t, l, 10*time.Second)
		them := another(t, b, locker.Config{Service: "them"})
		theirs := mustLock(t, them, "k")
		time.AfterFunc(25*time.Second, func() { _ = theirs.Unlock() })

		began := time.Now()
		_, err := l.Lock(t.Context(), "k", locker.FailFast(), locker.WaitLimit(9*time.Second))
		refusedAtOnce(t, err, began, locker.WouldTimeoutError{
			RetryAfter: 10 * time.Second, Left: 9 * time.Second, Position: 1,
			Holder: backend.Meta{Service: "them"},
		})
		state, _ := b.Inspect(t.Context(), "k")
		if n := len(state.Waiters); n != 0 {
			t.Errorf("%d are left standing in line", n)
		}

		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { holdFor(t, l, 10*time.Second) })
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 39*time.Second)
		defer cancel()
		_, err = l.Lock(ctx, "k", locker.FailFast())
		refusedAtOnce(t, err, began, locker.WouldTimeoutError{
			RetryAfter: 40 * time.Second, Left: 39 * time.Second, Position: 4,
			Holder: backend.Meta{Service: "them"},
		})
		// 55s in truth, and by a heartbeat's answer then 65.
		g, err := l.Lock(t.Context(), "k", locker.FailFast(), locker.WaitLimit(70*time.Second))
		if err != nil {
			t.Fatalf("a wait that has time enough: %v", err)
		}
		_ = g.Unlock()
		all.Wait()
		if err := them.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Readers and permits each ask for themselves: they are refused as a mutex is.
func TestFailFastOfReadersAndPermits(t *testing.T) {
	for name, kind := range map[string]locker.Option{
		"reader": locker.Shared(),
		"permit": locker.Permit(3),
	} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			bubble(t, b, locker.Config{Service: "us"},
				func(t *testing.T, l *locker.Client[struct{}]) {
					holdFor(t, l, 10*time.Second)
					them := another(t, b, locker.Config{Service: "them"})
					theirs := mustLock(t, them, "k")
					began := time.Now()
					_, err := l.Lock(t.Context(), "k", kind, locker.FailFast(),
						locker.WaitLimit(9*time.Second))
					refusedAtOnce(t, err, began, locker.WouldTimeoutError{
						RetryAfter: 10 * time.Second, Left: 9 * time.Second, Position: 1,
						Holder: backend.Meta{Service: "them"},
					})
					time.AfterFunc(10*time.Second, func() { _ = theirs.Unlock() })
					g, err := l.Lock(t.Context(), "k", kind, locker.FailFast(),
						locker.WaitLimit(11*time.Second))
					if err != nil {
						t.Fatalf("a wait that has time enough: %v", err)
					}
					_ = g.Unlock()
					if err := them.Shutdown(t.Context()); err != nil {
						t.Error(err)
					}
				})
		})
	}
}

// Held in this process: the same, without the store.
func TestFailFastBehindOurOwn(t *testing.T) {
	b := hook()
	cfg := locker.Config{Service: "us", Wait: waiting.Config{FailFast: true}}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		holdFor(t, l, 10*time.Second)
		g := mustLock(t, l, "k")
		asked, began := b.acquires.Load(), time.Now()
		_, err := l.Lock(t.Context(), "k", locker.WaitLimit(5*time.Second))
		refusedAtOnce(t, err, began, locker.WouldTimeoutError{
			RetryAfter: 10 * time.Second, Left: 5 * time.Second, Position: 1,
			Holder: backend.Meta{Service: "us"},
		})
		if b.acquires.Load() != asked {
			t.Error("asked the store for it")
		}
		_, err = l.TryLock(t.Context(), "k") // does not wait, so it cannot be in vain
		if errors.Is(err, locker.ErrWouldTimeout) {
			t.Errorf("TryLock: %v", err)
		}
		_ = g.Unlock()
	})
}

// What is not known, or was forgotten, is no reason to fail; nor is it one without FailFast, or
// without a deadline.
func TestFailFastOnlyOnWhatIsKnown(t *testing.T) {
	hurry := []locker.Option{locker.FailFast(), locker.WaitLimit(2 * time.Second)}
	for name, try := range map[string]struct {
		known time.Duration
		pause time.Duration
		opts  []locker.Option
	}{
		"nothing":       {0, 0, hurry},
		"long ago":      {10 * time.Second, 61 * time.Second, hurry},
		"not asked for": {10 * time.Second, 0, hurry[1:]},
		"no deadline":   {10 * time.Second, 0, hurry[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
				if try.known > 0 {
					holdFor(t, l, try.known)
				}
				time.Sleep(try.pause)
				them := another(t, b, locker.Config{})
				g := mustLock(t, them, "k")
				time.AfterFunc(time.Second, func() { _ = g.Unlock() })
				_ = mustLock(t, l, "k", try.opts...).Unlock()
				if err := them.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A store that grants nothing for a while says for how long: that is certain.
func TestFailFastInQuarantine(t *testing.T) {
	b := plain()
	b.acquire = func(context.Context, backend.Claim) (backend.Grant, error) {
		return backend.Grant{}, &backend.QuarantineError{RetryAfter: time.Minute}
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		began := time.Now()
		_, err := l.Lock(t.Context(), "k", locker.FailFast(), locker.WaitLimit(59*time.Second))
		wantErr(t, err, locker.ErrWouldTimeout, backend.ErrQuarantined)
		if d := time.Since(began); d != 0 {
			t.Errorf("failed after %v, want at once", d)
		}
	})
}

// Everybody who fails to lock learns where in line it was, and about how long it would have taken.
func TestEstimateIsInTheError(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		holdFor(t, l, 8*time.Second)
		holdFor(t, l, 16*time.Second) // an eighth of it counts: 9s
		g := mustLock(t, l, "k")
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := l.Lock(t.Context(), "k", locker.WaitLimit(time.Second))
				errs <- err
			}()
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		for range 3 {
			var held *locker.HeldError
			if err := <-errs; !errors.As(err, &held) || held.Position != 1 ||
				held.Wait != 9*time.Second {
				t.Errorf("%v: %+v", err, held)
			} // each is the first in line, as those before it have given up
		}
		_, err := l.TryLock(t.Context(), "k")
		var held *locker.HeldError
		if !errors.As(err, &held) || held.Wait != 9*time.Second {
			t.Errorf("TryLock: %v", err)
		}
		_ = g.Unlock()
	})
}

// A semaphore's permits are given back side by side.
func TestEstimateForPermits(t *testing.T) {
	b := plain()
	b.caps.Permit, b.caps.Weight = true, true
	b.acquire = func(context.Context, backend.Claim) (backend.Grant, error) {
		if b.acquires.Load() == 1 {
			return backend.Grant{Token: 1}, nil
		}
		return backend.Grant{}, &backend.HeldError{Position: 7}
	}
	b.renew = func(context.Context, backend.Claim) error { return nil }
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g, err := l.Lock(t.Context(), "k", locker.Permit(3))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		_ = g.Unlock()
		for weight, turns := range []int{3, 3, 3, 3, 4, 4} {
			_, err = l.TryLock(t.Context(), "k", locker.Permit(3), locker.Weight(weight))
			if weight > 3 {
				wantErr(t, err, backend.ErrInvalid)
				continue
			}
			var held *locker.HeldError
			if !errors.As(err, &held) || held.Wait != time.Duration(turns)*time.Minute {
				t.Errorf("weight %d: %v: want %d turns of three at once", weight, err, turns)
			}
		}
	})
}
