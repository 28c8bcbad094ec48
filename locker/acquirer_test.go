package locker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

// The last of a process that waits gives up: its Lock returns when its place, or a grant without an
// answer, is out of the store. Who comes meanwhile asks only after that, not beside a claim that
// nobody wants.
//
// covers: W7, W8, X11
func TestLockReturnsWhenItsClaimIsWithdrawn(t *testing.T) {
	const takes = 50 * time.Millisecond // less than a failing Lock waits for
	for name, test := range map[string]struct {
		b *hooked
		// the key is free, and no answer to who gives up arrives; else another process holds it
		granted bool
		comes   bool // another of this process wants the key during the withdrawal
	}{
		"a place":                                {b: hook()},
		"a place, another comes":                 {b: hook(), comes: true},
		"a grant in the queue":                   {b: hook(), granted: true},
		"a grant in the queue, another comes":    {b: hook(), granted: true, comes: true},
		"a grant without a queue":                {b: plain(), granted: true},
		"a grant without a queue, another comes": {b: plain(), granted: true, comes: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := test.b
			var first atomic.Pointer[backend.Claim]
			b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
				first.CompareAndSwap(nil, &c)
				g, err := b.Backend.TryAcquire(ctx, c)
				if test.granted && c.Owner == first.Load().Owner {
					return backend.Grant{}, errSilence
				}
				return g, err
			}
			comes := func() {}
			b.release = func(ctx context.Context, c backend.Claim) error {
				if c.Owner != first.Load().Owner {
					return storetest.Release(ctx, b.Backend, c)
				}
				asked := b.acquires.Load()
				time.AfterFunc(takes/2, comes)
				time.Sleep(takes)
				if n := b.acquires.Load() - asked; n > 0 {
					t.Errorf("%d attempts beside the claim of who gave up, want none before "+
						"it is withdrawn", n)
				}
				return storetest.Release(ctx, b.Backend, c)
			}
			bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
				held := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
				if !test.granted {
					_, err := b.Backend.TryAcquire(t.Context(), held)
					storetest.Want(t, "TryAcquire of who holds", err, nil)
				}
				type locks = func(context.Context, string,
					...locker.Option) (*locker.Guard[struct{}], error)
				uses := func(lock locks) error {
					g, err := lock(t.Context(), "k", locker.WaitLimit(time.Minute))
					if err != nil {
						return err
					}
					return g.Unlock()
				}
				next := make(chan error, 1)
				if test.comes {
					comes = func() { next <- uses(l.Lock) }
				}
				began := time.Now()
				_, err := l.Lock(t.Context(), "k", locker.WaitLimit(time.Second))
				wantErr(t, err, locker.ErrNotAcquired, context.DeadlineExceeded)
				if took := time.Since(began); took != time.Second+takes {
					t.Errorf("Lock returned after %v, want with the end of the withdrawal, at %v",
						took, time.Second+takes)
				}
				if !test.granted {
					storetest.Want(t, "Release of who holds",
						storetest.Release(t.Context(), b.Backend, held), nil)
				}
				if !test.comes {
					wantNothing(t, b, "k")
					next <- uses(l.TryLock)
				}
				if err := <-next; err != nil {
					t.Errorf("the next one, of a key that is free: %v", err)
				}
				wantNothing(t, b, "k")
			})
		})
	}
}
