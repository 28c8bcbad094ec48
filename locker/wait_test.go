package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

func TestUncontendedLockIsOneQuestion(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		if err := mustLock(t, l, "k").Unlock(); err != nil {
			t.Fatal(err)
		}
		if a, w, r := b.acquires.Load(), b.watches.Load(), b.releases.Load(); a != 1 || w != 0 ||
			r != 1 {
			t.Errorf("%d attempts, %d watches, %d releases; want 1, 0, 1", a, w, r)
		}
	})
}

func TestWaiterIsWokenByRelease(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		time.AfterFunc(10*time.Minute+time.Microsecond, func() { _ = g.Unlock() })
		start := time.Now()
		defer mustLock(t, l, "k").Unlock()
		if d := time.Since(start); d != 10*time.Minute+time.Microsecond {
			t.Errorf("granted after %v, want at once with the release", d)
		}
	})
}

// Where another's hold was in the way just now, a Lock subscribes before it asks, and its place in
// the queue needs no second attempt. A Lock of a key that is free after all leaves no
// subscription.
//
// covers: W1
func TestKnownContentionIsOneQuestion(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{Wait: waiting.Config{Passes: -1}},
		func(t *testing.T, l *locker.Client[struct{}]) {
			other, err := locker.New(b.Backend, locker.Bare, locker.Config{}) // as another process
			if err != nil {
				t.Fatal(err)
			}
			for round, want := range []int64{2, 1, 1} {
				g := mustLock(t, other, "k")
				time.AfterFunc(20*time.Millisecond, func() { _ = g.Unlock() })
				before := b.acquires.Load()
				if err := mustLock(t, l, "k").Unlock(); err != nil {
					t.Fatal(err)
				}
				if got := b.acquires.Load() - before; got != want {
					t.Errorf("round %d: %d attempts, want %d", round, got, want)
				}
			}
			var watching context.Context
			b.watch = func(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
				watching = ctx
				return b.Backend.Watch(ctx, c)
			}
			if err := mustLock(t, l, "k").Unlock(); err != nil { // free
				t.Fatal(err)
			}
			if watching == nil || watching.Err() == nil {
				t.Error("no subscription before the attempt, or one that goes on")
			}
			// And released before the subscription is there, so that no signal comes.
			g := mustLock(t, other, "k")
			b.watch = func(context.Context, backend.Claim) (<-chan backend.Wake, error) {
				return make(chan backend.Wake), g.Unlock()
			}
			start := time.Now()
			defer mustLock(t, l, "k").Unlock()
			if d := time.Since(start); d != 0 {
				t.Errorf("slept %v beside a free lock", d)
			}
		})
}

// The lock is released after the first attempt and before the subscription: only the attempt
// after the subscription can find it free, since no signal will come.
// covers: W1
func TestAsksAgainAfterSubscribing(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{Wait: waiting.Config{Fallback: time.Hour}},
		func(t *testing.T, l *locker.Client[struct{}]) {
			other, err := locker.New(b.Backend, locker.Bare, locker.Config{}) // as another process
			if err != nil {
				t.Fatal(err)
			}
			g := mustLock(t, other, "k")
			b.watch = func(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
				if err := g.Unlock(); err != nil {
					t.Error(err)
				}
				return make(chan backend.Wake), nil
			}
			start := time.Now()
			defer mustLock(t, l, "k").Unlock()
			if d := time.Since(start); d != 0 {
				t.Errorf("slept %v beside a free lock", d)
			}
		})
}

// covers: W2, W12, R21
func TestLostWakeUpCostsTheFallbackAtMost(t *testing.T) {
	b := hook()
	b.watch = func(context.Context, backend.Claim) (<-chan backend.Wake, error) {
		return make(chan backend.Wake), nil
	}
	cfg := locker.Config{TTL: time.Minute, Wait: waiting.Config{Fallback: 2 * time.Second}}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		time.AfterFunc(time.Second, func() { _ = g.Unlock() })
		start := time.Now()
		defer mustLock(t, l, "k").Unlock()
		if d := time.Since(start); d > 2400*time.Millisecond {
			t.Errorf("took %v, want the jittered fallback of 2s at most", d)
		}
	})
}

// covers: W12
func TestFalseWakeUpsGrantNothing(t *testing.T) {
	b := hook()
	b.watch = func(ctx context.Context, _ backend.Claim) (<-chan backend.Wake, error) {
		wake := make(chan backend.Wake, 1)
		go func() {
			for {
				select {
				case <-time.After(10 * time.Millisecond):
				case <-ctx.Done():
					return
				}
				select {
				case wake <- backend.Wake{Granted: true, Grant: backend.Grant{Token: 7}}:
				default:
				}
			}
		}()
		return wake, nil
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		_, err := l.Lock(t.Context(), "k", locker.WaitLimit(time.Second))
		wantErr(t, err, locker.ErrNotAcquired, context.DeadlineExceeded, backend.ErrHeld)
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// The end of the lease that blocks is a moment to ask, whatever the fallback: no store signals it
// reliably.
// covers: R18, G6
func TestAsksWhenTheBlockingLeaseEnds(t *testing.T) {
	b := hook()
	cfg := locker.Config{Wait: waiting.Config{Fallback: time.Hour}}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		// A holder that crashed.
		dead := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: 7 * time.Second}
		if _, err := b.TryAcquire(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		defer mustLock(t, l, "k").Unlock()
		if d := time.Since(start); d < 7*time.Second || d > 7*time.Second+10*time.Millisecond {
			t.Errorf("granted after %v, want right after the lease of 7s", d)
		}
	})
}

func TestPollsWhereNobodySignals(t *testing.T) {
	closed := make(chan backend.Wake)
	close(closed)
	for name, watch := range map[string]func(context.Context,
		backend.Claim) (<-chan backend.Wake, error){
		"unsupported": func(context.Context, backend.Claim) (<-chan backend.Wake, error) {
			return nil, errors.ErrUnsupported
		},
		"closed": func(context.Context, backend.Claim) (<-chan backend.Wake, error) {
			return closed, nil
		},
		"unreachable": func(context.Context, backend.Claim) (<-chan backend.Wake, error) {
			return nil, errSilence
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			b.watch = func(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
				if b.watches.Load() > 1000 { // in no time, perhaps
					return make(chan backend.Wake), nil
				}
				return watch(ctx, c)
			}
			cfg := locker.Config{Wait: waiting.Config{
				Max:      100 * time.Millisecond,
				Fallback: time.Hour,
			}}
			bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
				time.AfterFunc(10*time.Second, holder(t, b))
				start := time.Now()
				defer mustLock(t, l, "k").Unlock()
				if d := time.Since(start); d > 10*time.Second+100*time.Millisecond {
					t.Errorf("granted after %v, want within the poll interval of 100ms after 10s",
						d)
				}
				if n := b.acquires.Load(); n > 1000 {
					t.Errorf("%d attempts in 10s: that is no backoff", n)
				}
				if n := b.watches.Load(); name != "unreachable" && n != 1 {
					t.Errorf("asked for wake-ups %d times, though there are none", n)
				}
			})
		})
	}
}

func TestPollModeNeverSubscribes(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{Wait: waiting.Config{Mode: waiting.Poll}},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			time.AfterFunc(time.Minute, func() { _ = g.Unlock() })
			defer mustLock(t, l, "k").Unlock()
			if b.watches.Load() != 0 {
				t.Error("subscribed in mode poll")
			}
		})
}

func TestTryLockAsksOnce(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{Service: "till"}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		_, err := l.TryLock(t.Context(), "k")
		wantErr(t, err, locker.ErrNotAcquired, backend.ErrHeld)
		var held *backend.HeldError
		if !errors.As(err, &held) || held.Holder.Service != "till" || held.Holder.PID == 0 ||
			held.RetryAfter <= 0 {
			t.Errorf("the error does not tell who holds: %#v", held)
		}
		if b.acquires.Load() != 2 || b.watches.Load() != 0 {
			t.Error("TryLock asked more than once")
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// covers: R20, R24
func TestRefusalEndsTheWaitAtOnce(t *testing.T) {
	for _, refusal := range []error{
		backend.ErrForeign, backend.ErrDenied, backend.ErrUnsafe, backend.ErrClosed,
		errors.ErrUnsupported,
	} {
		b := hook()
		b.acquire = func(context.Context, backend.Claim) (backend.Grant, error) {
			return backend.Grant{}, refusal
		}
		bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
			start := time.Now()
			_, err := l.Lock(t.Context(), "k")
			wantErr(t, err, locker.ErrNotAcquired, refusal)
			if time.Since(start) != 0 || b.acquires.Load() != 1 {
				t.Errorf("%v was asked again", refusal)
			}
		})
	}
}

// covers: B9
func TestOneStuckHoldDoesNotStopOthers(t *testing.T) {
	b := hook()
	b.renew = func(ctx context.Context, c backend.Claim) error {
		if c.Key == "stuck" {
			<-ctx.Done()
			return ctx.Err()
		}
		return b.Backend.Renew(ctx, c)
	}
	bubble(t, b, locker.Config{TTL: 10 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			stuck, fine := mustLock(t, l, "stuck"), mustLock(t, l, "fine")
			<-stuck.Lost()
			time.Sleep(time.Minute)
			synctest.Wait()
			if err := fine.Unlock(); err != nil {
				t.Errorf("a hold beside a stuck one: %v", err)
			}
			wantErr(t, stuck.Unlock(), locker.ErrLost)
		})
}
