package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// More leases are due than renewals may be in flight, and those in flight hang, whatever their
// contexts say: those whose turn does not come are ended at their deadlines like the others.
// covers: B3
func TestDeadlinesOfThoseWhoWaitForTheirRenewal(t *testing.T) {
	b := hook()
	// So short that those in flight still count at the deadline, see stalledAfter.
	cfg := locker.Config{TTL: 600 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		goOn := make(chan struct{})
		b.renew = func(context.Context, backend.Claim) error { <-goOn; return errSilence }
		var guards []*locker.Guard[struct{}]
		for i := range 300 {
			guards = append(guards, mustLock(t, l, fmt.Sprint(i)))
		}
		time.Sleep(599 * time.Millisecond)
		synctest.Wait()
		for i, g := range guards {
			if !errors.Is(context.Cause(g.Context()), locker.ErrLost) {
				t.Fatalf("the context of %d goes on behind the deadline", i)
			}
		}
		close(goOn)
		for _, g := range guards {
			wantErr(t, g.Unlock(), locker.ErrLost)
		}
	})
}

// Where there are no tokens a lease is handed on no more often either.
func TestPassesBoundTheCohortWithoutFencing(t *testing.T) {
	b := count()
	b.caps = &backend.Capabilities{Watch: true, Inspect: true, MinTTL: time.Millisecond}
	bubble(t, b, locker.Config{Wait: waiting.Config{Passes: 4, PassTime: time.Hour}},
		func(t *testing.T, l *locker.Client[struct{}]) {
			crowd(t, l, 64, 0)
			if grants, _ := b.seen(); grants < 13 {
				t.Errorf("the store granted %d times for 65 holds in fives", grants)
			}
		})
}

// closing is an observer that begins to close the client when a lock was granted.
type closing struct {
	l      *locker.Client[struct{}]
	closed chan error
	begun  atomic.Bool
}

func (*closing) Begin(ctx context.Context, _ string,
	_ locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	return ctx, func(locker.Hold, error) {}
}

func (o *closing) Event(ctx context.Context, e locker.Event) {
	if e.Kind != locker.EventGrant || !o.begun.CompareAndSwap(false, true) {
		return
	}
	go func() { o.closed <- o.l.Close() }()
	for {
		g, err := o.l.TryLock(ctx, "other")
		if errors.Is(err, locker.ErrClosed) {
			return
		}
		_ = g.Unlock()
		time.Sleep(time.Millisecond)
	}
}

// A lock that is granted just when Close begins is ended like those that are held, and Lock says
// so.
// covers: G1
func TestGrantedWhenCloseBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &closing{closed: make(chan error, 1)}
		l := start(t, hook(), locker.Config{Observer: o})
		o.l = l
		g, err := l.Lock(t.Context(), "k")
		wantErr(t, err, locker.ErrNotAcquired, locker.ErrClosed)
		if err := <-o.closed; err != nil {
			t.Error(err)
		}
		_ = g.Unlock()
	})
}

// An Unlock that comes when Close has run out of time repeats a release that is not answered.
// covers: G1
func TestUnlockAfterCloseRepeatsTheRelease(t *testing.T) {
	b := hook()
	var answers atomic.Bool
	b.release = func(ctx context.Context, c backend.Claim) error {
		if b.releases.Load() == 1 {
			return errSilence
		}
		answers.Store(true)
		return storetest.Release(ctx, b.Backend, c)
	}
	synctest.Test(t, func(t *testing.T) {
		l := start(t, b, locker.Config{TTL: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		g := mustLock(t, l, "k")
		wantErr(t, l.Close(), context.DeadlineExceeded)
		if err := g.Unlock(); err != nil || !answers.Load() {
			t.Errorf("Unlock = %v, after a release that was repeated: %v", err, answers.Load())
		}
		wantHeld(t, b, "k", false)
	})
}

// A hold was lost as no renewal was answered. They were executed all the same, so the key is
// locked, and Unlock sees to it that nobody waits for the rest of the lease.
// covers: W13
func TestUnlockOfALostHoldFreesTheKey(t *testing.T) {
	b := hook()
	b.renew = func(ctx context.Context, c backend.Claim) error {
		return errors.Join(b.Backend.Renew(ctx, c), errSilence)
	}
	bubble(t, b, locker.Config{TTL: 30 * time.Second, Logger: slog.New(slog.DiscardHandler)},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			<-g.Lost()
			wantHeld(t, b, "k", true)
			wantErr(t, g.Unlock(), locker.ErrLost, locker.ErrExpired)
			synctest.Wait()
			wantHeld(t, b, "k", false)
		})
}
