package locker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

func TestAllLocksSortedOnceEach(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		all, err := locker.All(t.Context(), l, []string{"c", "a", "b", "a"})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(all.Keys(), []string{"a", "b", "c"}) || all.Guard("b") == nil ||
			all.Guard("x") != nil {
			t.Errorf("keys %v", all.Keys())
		}
		if v, err := all.Values(); err != nil || len(v) != 3 {
			t.Errorf("%d values, %v", len(v), err)
		}
		ctx := all.Context()
		if err := all.Unlock(); err != nil {
			t.Error(err)
		}
		wantErr(t, context.Cause(ctx), locker.ErrUnlocked)
		_, err = all.Values()
		wantErr(t, err, locker.ErrUnlocked)
		for _, k := range all.Keys() {
			wantHeld(t, b, k, false)
		}
	})
}

// covers: G9
func TestAllDoesNotDeadlock(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		keys := []string{"a", "b", "c", "d"}
		var done sync.WaitGroup
		for i := range 20 {
			mine := slices.Concat(keys[i%4:], keys[:i%4])
			if i%2 == 0 {
				slices.Reverse(mine)
			}
			done.Go(func() {
				all, err := locker.All(t.Context(), l, mine)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Millisecond)
				if err := all.Unlock(); err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
	})
}

func TestAllOrNothingWithinOneLimit(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		blocker := mustLock(t, l, "b")
		start := time.Now()
		_, err := locker.All(t.Context(), l, []string{"c", "b", "a"}, locker.WaitLimit(time.Second))
		wantErr(t, err, locker.ErrNotAcquired, context.DeadlineExceeded)
		var e *locker.Error
		if !errors.As(err, &e) || e.Key != "b" {
			t.Errorf("the error does not name the key that failed: %v", err)
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("took %v, want the limit of 1s for all together", d)
		}
		wantHeld(t, b, "a", false)
		wantHeld(t, b, "c", false)
		_ = blocker.Unlock()
		_, err = locker.All(t.Context(), l, nil)
		wantErr(t, err, locker.ErrNotAcquired, backend.ErrInvalid)
	})
}

func TestAllEndsWithTheFirstLoss(t *testing.T) {
	b := hook()
	b.renew = func(ctx context.Context, c backend.Claim) error {
		if c.Key == "a" {
			return backend.ErrLost
		}
		return b.Backend.Renew(ctx, c)
	}
	bubble(t, b, locker.Config{TTL: 3 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			all, err := locker.All(t.Context(), l, []string{"a", "b", "c"})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-all.Context().Done():
			case <-time.After(time.Minute):
			}
			wantErr(t, context.Cause(all.Context()), locker.ErrLost)
			_, err = all.Values()
			wantErr(t, err, locker.ErrLost)
			wantErr(t, all.Unlock(), locker.ErrLost)
			wantHeld(t, b, "c", false)
		})
}

// One of the locks is lost while the next one is waited for: All fails then, and does not wait for
// what it has no use for.
//
// covers: B1
func TestAllFailsWhenOneIsLostMeanwhile(t *testing.T) {
	b := hook()
	b.renew = func(context.Context, backend.Claim) error { return backend.ErrLost }
	bubble(t, b, locker.Config{TTL: 3 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			defer holder(t, b)()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			_, err := locker.All(ctx, l, []string{"j", "k"})
			wantErr(t, err, locker.ErrNotAcquired, locker.ErrLost)
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("All failed after %v, of locks with a TTL of 3s", took)
			}
		})
}

// covers: G3
func TestLockingAgainUnderTheGuardWouldDeadlock(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		// Another Client of the same store is no way around.
		other, err := locker.New(b, locker.Fixed(7), locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		err = locker.Do(t.Context(), l, "k", func(ctx context.Context, _ struct{}) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			start := time.Now()
			_, err := l.Lock(ctx, "k")
			wantErr(t, err, locker.ErrNotAcquired, locker.ErrWouldDeadlock)
			_, err = other.Lock(ctx, "k")
			wantErr(t, err, locker.ErrWouldDeadlock)
			if time.Since(start) != 0 {
				t.Error("it took a while to notice")
			}
			_, err = l.TryLock(ctx, "k")
			wantErr(t, err, backend.ErrHeld)
			// Two deep.
			return locker.Do(ctx, l, "other", func(ctx context.Context, _ struct{}) error {
				_, err := l.Lock(ctx, "k")
				wantErr(t, err, locker.ErrWouldDeadlock)
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
		g := mustLock(t, l, "k")
		ctx := context.WithoutCancel(g.Context())
		_ = g.Unlock()
		again, err := l.Lock(ctx, "k") // the hold is over, so nothing is in the way
		if err != nil {
			t.Error(err)
		}
		_ = again.Unlock()
		_ = other.Shutdown(t.Context())
	})
}

func TestLockingInsideTheBinderWouldDeadlock(t *testing.T) {
	b := hook()
	var l *locker.Client[int]
	bind := func(ctx context.Context, h locker.Hold) (int, error) {
		_, err := l.Lock(ctx, h.Key)
		return 0, err
	}
	l, err := locker.New(b, bind, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Lock(t.Context(), "k")
	wantErr(t, err, locker.ErrWouldDeadlock)
	wantHeld(t, b, "k", false)
	_ = l.Shutdown(t.Context())
}
