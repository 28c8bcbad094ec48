package locker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

// slowErr is a context that, when it is asked next whether it has ended, waits for what is stored
// here.
type slowErr struct {
	context.Context
	until atomic.Pointer[chan struct{}]
}

func (c *slowErr) Err() error {
	if until := c.until.Swap(nil); until != nil {
		<-*until
	}
	return c.Context.Err()
}

// A Detach that finds the hold good, as an Unlock has begun and not ended it yet, gives no ticket
// of what that Unlock releases.
//
// covers: G5
func TestDetachBesideAnUnlock(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{TTL: 9 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			ctx := &slowErr{Context: t.Context()}
			g, err := l.Lock(ctx, "k", locker.Reentrant(backend.NewOwner()))
			storetest.Want(t, "Lock", err, nil)
			goOn := make(chan struct{})
			ctx.until.Store(&goOn) // Unlock asks, before it ends the hold
			unlocked := make(chan error)
			go func() { unlocked <- g.Unlock() }()
			synctest.Wait()
			if _, err := g.Value(); err != nil || ctx.until.Load() != nil {
				t.Errorf("Value = %v when Unlock has begun, or it has not: this shows nothing", err)
			}
			var ticket locker.Ticket
			detached := make(chan error)
			go func() {
				var err error
				ticket, err = g.Detach()
				detached <- err
			}()
			synctest.Wait()
			close(goOn)
			storetest.Want(t, "Unlock", <-unlocked, nil)
			storetest.Want(t, "Detach beside it", <-detached, locker.ErrUnlocked)
			if ticket != (locker.Ticket{}) {
				t.Errorf("a ticket of what was released: %+v", ticket)
			}
			wantHeld(t, b, "k", false)
		})
}
