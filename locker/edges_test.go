package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// A store that falls silent while All waits costs no more than the limit, whatever it holds by
// then, or has to give back.
func TestAllKeepsItsLimitWithASilentStore(t *testing.T) {
	for _, held := range []string{"z", "0"} { // behind all others, and before
		b := hook()
		bubble(t, b, locker.Config{TTL: time.Minute},
			func(t *testing.T, l *locker.Client[struct{}]) {
				other := mustLock(t, l, held)
				b.release = func(ctx context.Context, c backend.Claim) error {
					if c.Key == held {
						return storetest.Release(ctx, b.Backend, c)
					}
					<-ctx.Done()
					return errSilence
				}
				began := time.Now()
				_, err := locker.All(t.Context(), l, append(keysOf(200), held),
					locker.WaitLimit(500*time.Millisecond))
				wantErr(t, err, locker.ErrNotAcquired, context.DeadlineExceeded)
				if took := time.Since(began); took > time.Second {
					t.Errorf("All failed after %v", took)
				}
				if err := other.Unlock(); err != nil {
					t.Error(err)
				}
			})
	}
}

func TestNilsAreHarmless(t *testing.T) {
	var all *locker.Guards[struct{}]
	_, err := all.Values()
	wantErr(t, err, locker.ErrUnlocked)
	wantErr(t, all.Unlock(), locker.ErrUnlocked)
	if all.Keys() != nil || all.Guard("k") != nil || all.Context().Err() == nil {
		t.Error("nil Guards hold something")
	}
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		if err := mustLock(t, l, "k", nil).Unlock(); err != nil {
			t.Error(err)
		}
		var e *locker.Error
		if err := locker.Do(t.Context(), l, "k", nil); !errors.As(err, &e) ||
			!errors.Is(err, backend.ErrInvalid) {
			t.Errorf("Do without a function = %v", err)
		}
		if err := locker.Lead(t.Context(), l, "k", nil); !errors.As(err, &e) ||
			!errors.Is(err, backend.ErrInvalid) {
			t.Errorf("Lead without a function = %v", err)
		}
		if n := b.acquires.Load(); n != 1 {
			t.Errorf("%d claims were made, want 1", n)
		}
	})
}

// Options that cannot be had are refused by name, whatever the store, before it is asked.
func TestOptionsAreRefused(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		shared, permit := locker.Shared(), locker.Permit(2)
		for name, opts := range map[string][]locker.Option{
			"WaitLimit": {locker.WaitLimit(-1)}, "mode": {shared, permit}, "mode ": {
				permit,
				shared,
			}, "mode  ": {permit, shared, locker.Permit(3)},
		} {
			var invalid *backend.InvalidError
			_, err := l.Lock(t.Context(), "k", opts...)
			if !errors.As(err, &invalid) || invalid.Field != strings.TrimSpace(name) {
				t.Errorf("%s: %v", name, err)
			}
			wantErr(t, err, locker.ErrNotAcquired, backend.ErrInvalid)
			_, err = locker.All(t.Context(), l, []string{"a", "b"}, opts...)
			wantErr(t, err, backend.ErrInvalid)
		}
		if n := b.acquires.Load(); n > 0 {
			t.Errorf("the store was asked %d times", n)
		}
		for _, opts := range [][]locker.Option{
			{shared, shared},
			{permit, locker.Permit(3)},
			{locker.WaitLimit(0)},
		} {
			g, err := l.Lock(t.Context(), "k", opts...)
			if err != nil {
				t.Fatal(err)
			}
			_ = g.Unlock()
		}
	})
}

// A Lock whose Binder is at work when its hold ends fails, and says why that ended.
//
// covers: G1
func TestHoldThatEndsInTheBinder(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		end  func(b *hooked, l *locker.Client[int])
		opts []locker.Option
		why  error
	}{
		"Close": {func(_ *hooked, l *locker.Client[int]) { go l.Close() }, nil, locker.ErrClosed},
		"MaxHold": {
			func(*hooked, *locker.Client[int]) {},
			[]locker.Option{locker.MaxHold(time.Second)},
			locker.ErrMaxHold,
		},
		"a loss": {func(b *hooked, _ *locker.Client[int]) {
			b.renew = func(context.Context, backend.Claim) error { return backend.ErrLost }
		}, nil, locker.ErrLost},
	} {
		for _, fails := range []func(ctx context.Context) error{
			context.Context.Err, func(context.Context) error {
				return broken
			}, context.Cause, func(context.Context) error { return nil },
		} {
			synctest.Test(t, func(t *testing.T) {
				b := hook()
				var l *locker.Client[int]
				l, err := locker.New(b, func(ctx context.Context, _ locker.Hold) (int, error) {
					test.end(b, l)
					<-ctx.Done()
					return 1, fails(ctx)
				}, locker.Config{})
				if err != nil {
					t.Fatal(err)
				}
				g, err := l.Lock(t.Context(), "k", test.opts...)
				if err == nil && name != "Close" { // it is for Value to say so
					_, err = g.Value()
					wantErr(t, err, test.why)
					_ = g.Unlock()
				} else {
					wantErr(t, err, locker.ErrNotAcquired, test.why)
				}
				if errors.Is(err, context.Canceled) ||
					strings.Contains(err.Error(), context.Canceled.Error()) {
					t.Errorf("%s: %q blames the caller", name, err)
				}
				_ = l.Close()
				wantHeld(t, b, "k", false)
			})
		}
	}
}

// covers: I2
func TestABackendsLongestTTL(t *testing.T) {
	b := plain()
	b.caps.MinTTL, b.caps.MaxTTL = time.Second, 10*time.Second
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		if got := time.Until(g.Until()); got > 10*time.Second || got < 9*time.Second {
			t.Errorf("by default a lease ends in %v, want the backend's 10s", got)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		for ttl, want := range map[time.Duration]string{1: "1s", 11 * time.Second: "10s"} {
			_, err := l.Lock(t.Context(), "k", locker.TTL(ttl))
			if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("TTL %v: %v, want one that names %s", ttl, err, want)
			}
		}
	})
	_, err := locker.New(b, locker.Bare, locker.Config{TTL: 11 * time.Second})
	wantErr(t, err, backend.ErrInvalid)
}

// Every error names the operation and the key, and says nothing twice.
func TestErrorsSayThingsOnce(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := locker.Lead(ctx, l, "k", func(ctx context.Context, _ struct{}) error {
			<-ctx.Done()
			return ctx.Err()
		})
		const want = `holdfast: lead "k": context deadline exceeded`
		if err == nil || err.Error() != want {
			t.Errorf("Lead = %q, want %q", err, want)
		}
		b.acquire = func(ctx context.Context, _ backend.Claim) (backend.Grant, error) {
			<-ctx.Done()
			return backend.Grant{}, errSilence
		}
		_, err = l.Lock(t.Context(), "k", locker.WaitLimit(time.Second))
		const silent = `holdfast: lock "k": lock not acquired: context deadline exceeded: no ` +
			`answer from the store: connection reset by test`
		if err == nil || err.Error() != silent {
			t.Errorf("Lock = %q, want %q", err, silent)
		}
		b.acquire = nil
	})
}

// A call may wait in its own way, within what the backend can do.
func TestWaitMode(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		other := another(t, b, locker.Config{})
		defer other.Close()
		for mode, queues := range map[waiting.Mode]bool{
			waiting.Auto: true, waiting.Handoff: true, waiting.Notify: false, waiting.Poll: false,
		} {
			g := mustLock(t, other, "k")
			b.watches.Store(0)
			got := make(chan error, 1)
			go func() {
				g, err := l.Lock(t.Context(), "k", locker.WaitMode(mode))
				if err == nil {
					err = g.Unlock()
				}
				got <- err
			}()
			time.Sleep(100 * time.Millisecond)
			state, err := b.Inspect(t.Context(), "k")
			if err != nil || (len(state.Waiters) == 1) != queues {
				t.Errorf("mode %q: %d stand in the store's line, %v", mode, len(state.Waiters), err)
			}
			if watched := b.watches.Load() > 0; watched != (mode != waiting.Poll) {
				t.Errorf("mode %q: watched: %v", mode, watched)
			}
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
			if err := <-got; err != nil {
				t.Errorf("mode %q: %v", mode, err)
			}
		}
		_, err := l.Lock(t.Context(), "k", locker.WaitMode("shout"))
		wantErr(t, err, locker.ErrNotAcquired, backend.ErrInvalid)
	})
	bubble(t, plain(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		_, err := l.Lock(t.Context(), "k", locker.WaitMode(waiting.Handoff))
		wantErr(t, err, locker.ErrNotAcquired, errors.ErrUnsupported)
	})
}
