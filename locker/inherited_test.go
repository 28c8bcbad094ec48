package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

// holder has another process hold "k" in b, until end is called.
func holder(t *testing.T, b *hooked) (end func()) {
	t.Helper()
	c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
	if _, err := b.Backend.TryAcquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := storetest.Release(t.Context(), b.Backend, c); err != nil {
			t.Errorf("Release by the other process = %v", err)
		}
	}
}

// inBackground locks "k" and unlocks it, and returns where the answer and the time of it come.
func inBackground(ctx context.Context, l *locker.Client[struct{}],
	opts ...locker.Option,
) <-chan error {
	answer := make(chan error, 1)
	go func() {
		g, err := l.Lock(ctx, "k", opts...)
		if err == nil {
			err = g.Unlock()
		}
		answer <- err
	}()
	synctest.Wait()
	return answer
}

// The only one who waits gives up while a request is on its way, and another comes before the
// answer: that is none to the other, who goes on waiting.
//
// covers: W6
func TestWhoComesBehindOneThatGivesUp(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		land := make(chan struct{})
		b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
			g, err := b.Backend.TryAcquire(ctx, c)
			if b.acquires.Load() == 2 {
				<-land
			}
			return g, err
		}
		end := holder(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		first := inBackground(ctx, l)
		if n := b.acquires.Load(); n != 2 {
			t.Fatalf("%d attempts, want a second one that is on its way", n)
		}
		cancel()
		synctest.Wait()
		next := inBackground(t.Context(), l)
		close(land)
		wantErr(t, <-first, locker.ErrNotAcquired, context.Canceled)
		synctest.Wait()
		select {
		case err := <-next:
			t.Fatalf("who came behind it has ended with %v, while its own context goes on", err)
		default:
		}
		end()
		if err := <-next; err != nil {
			t.Errorf("when the key was free: %v", err)
		}
	})
}

// Where a key was contended lately the first who wants it subscribes before its attempt. It gives
// up, and who came behind it is woken by that subscription.
//
// covers: W6
func TestWakeUpsOutliveWhoAskedForThem(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		end := holder(t, b)
		wantErr(t, <-inBackground(t.Context(), l, locker.WaitLimit(time.Millisecond)),
			locker.ErrNotAcquired)
		attempts, watches := b.acquires.Load(), b.watches.Load()
		ctx, cancel := context.WithCancel(t.Context())
		first := inBackground(ctx, l)
		if n, m := b.acquires.Load()-attempts, b.watches.Load()-watches; n != 1 || m != 1 {
			t.Fatalf("%d attempts and %d subscriptions, want one of each: this test shows nothing",
				n, m)
		}
		next := inBackground(t.Context(), l)
		cancel()
		wantErr(t, <-first, locker.ErrNotAcquired, context.Canceled)
		freed := time.Now()
		end()
		if err := <-next; err != nil {
			t.Errorf("who came behind it: %v", err)
		}
		if late := time.Since(freed); late > 0 {
			t.Errorf("got the lock %v after it was released, want it to be woken at once", late)
		}
	})
}

// A subscription that was made before an attempt ends with the Lock that made it and failed.
//
// covers: W13
func TestSubscriptionEndsWithAFailedLock(t *testing.T) {
	b, watching := hook(), context.Context(nil)
	b.watch = func(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
		watching = ctx
		return b.Backend.Watch(ctx, c)
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		defer holder(t, b)()
		wantErr(t, <-inBackground(t.Context(), l, locker.WaitLimit(time.Millisecond)),
			locker.ErrNotAcquired)
		watching = nil
		ctx, cancel := context.WithCancel(t.Context())
		b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
			cancel()
			return b.Backend.TryAcquire(ctx, c)
		}
		wantErr(t, <-inBackground(ctx, l), locker.ErrNotAcquired, context.Canceled)
		if watching == nil || watching.Err() == nil {
			t.Errorf("the subscription goes on: %v", watching)
		}
	})
}
