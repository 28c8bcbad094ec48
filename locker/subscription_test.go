package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// A holder's subscription to its loss is made again when it ends, or cannot be made, and the store
// is asked each time: so a hold that was ended by somebody else meanwhile is told as lost, long
// before its next renewal. Where the store says that there is nothing to subscribe to it is not
// asked again.
//
// covers: B4, W13
func TestSubscriptionOfAHolderThatEnds(t *testing.T) {
	silentOnce := func(n int64, b *hooked, ctx context.Context,
		c backend.Claim,
	) (<-chan backend.Wake, error) {
		if n == 1 {
			return nil, errSilence
		}
		return b.Backend.Watch(ctx, c)
	}
	for name, of := range map[string]struct {
		watch func(n int64, b *hooked, ctx context.Context,
			c backend.Claim) (<-chan backend.Wake, error)
		told bool  // of the loss, before a renewal
		most int64 // how often it subscribes
	}{
		"no answer at first": {silentOnce, true, 2},
		"closed at once": {func(n int64, b *hooked, ctx context.Context,
			c backend.Claim,
		) (<-chan backend.Wake, error) {
			if n == 1 {
				closed := make(chan backend.Wake)
				close(closed)
				return closed, nil
			}
			return b.Backend.Watch(ctx, c)
		}, true, 2},
		"refused": {func(int64, *hooked, context.Context,
			backend.Claim,
		) (<-chan backend.Wake, error) {
			return nil, backend.ErrForeign
		}, true, 1 << 10},
		"not supported": {func(int64, *hooked, context.Context,
			backend.Claim,
		) (<-chan backend.Wake, error) {
			return nil, errors.ErrUnsupported
		}, false, 1},
		"the store is closed": {func(int64, *hooked, context.Context,
			backend.Claim,
		) (<-chan backend.Wake, error) {
			return nil, backend.ErrClosed
		}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			caps := b.Backend.Capabilities()
			caps.Loss, b.caps = true, &caps
			const ttl = 5 * time.Minute
			bubble(t, b, locker.Config{TTL: ttl}, func(t *testing.T, l *locker.Client[struct{}]) {
				b.watch = func(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
					return of.watch(b.watches.Load(), b, ctx, c)
				}
				g := mustLock(t, l, "k")
				time.Sleep(30 * time.Second)
				if b.watches.Load() == 0 {
					t.Fatal("not subscribed: this test shows nothing")
				}
				renews := b.renews.Load()
				if _, err := b.ForceRelease(t.Context(), "k", g.Hold().Token); err != nil {
					t.Fatal(err)
				}
				ended := time.Now()
				<-g.Lost()
				wantErr(t, g.Unlock(), locker.ErrLost)
				if took := time.Since(ended); of.told != (took < 30*time.Second) {
					t.Errorf("told of the loss after %v and %d renewals", took,
						b.renews.Load()-renews)
				}
				if n := b.watches.Load(); n > of.most {
					t.Errorf("subscribed %d times, want %d at most", n, of.most)
				}
			})
		})
	}
}

// A waiter without a subscription asks so often that its place in the queue does not lapse, however
// seldom it may poll: it is the first as long as it waits, and gets the lock before who came later.
//
// covers: W2, W6, W10
func TestPlaceLastsWithoutASubscription(t *testing.T) {
	for name, watch := range map[string]func() (<-chan backend.Wake, error){
		"refused": func() (<-chan backend.Wake, error) { return nil, backend.ErrUnavailable },
		"closed": func() (<-chan backend.Wake, error) {
			closed := make(chan backend.Wake)
			close(closed)
			return closed, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			b.watch = func(context.Context, backend.Claim) (<-chan backend.Wake, error) {
				return watch()
			}
			lapsed := 0
			b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
				g, err := b.Backend.TryAcquire(ctx, c)
				var held *backend.HeldError
				if errors.As(err, &held) && held.Position > 1 {
					lapsed++
				}
				return g, err
			}
			cfg := locker.Config{
				TTL: time.Minute,
				Wait: waiting.Config{
					Fallback: 100 * time.Millisecond, Initial: time.Minute, Max: time.Minute,
				},
			}
			bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
				end := holder(t, b)
				first := inBackground(t.Context(), l)
				cfg := locker.Config{TTL: time.Minute}
				other := start(t, b.Backend, cfg)
				second := inBackground(t.Context(), other)
				time.Sleep(10 * time.Minute)
				end()
				for _, waited := range []<-chan error{first, second} {
					if err := <-waited; err != nil {
						t.Error(err)
					}
				}
				if lapsed > 0 {
					t.Errorf("it lost its place, and was behind who came later, %d times", lapsed)
				}
				if err := other.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
