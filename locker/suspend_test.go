package locker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
)

// A laptop is closed for a minute: the monotonic clock, and with it every timer, stands still, but the store's lease does not.
// covers: B13
func TestSuspendedTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(membackend.New(), Bare, Config{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var slept time.Duration
		l.core.asleep = func() time.Duration { return slept }
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		until := g.Until()

		slept = 5 * time.Millisecond // not a suspend: two clocks are never read at once
		if !g.Until().Equal(until) {
			t.Error("the time between reading two clocks was taken for a suspend")
		}
		slept = 10 * time.Second
		if !g.Until().Equal(until.Add(-10 * time.Second)) {
			t.Errorf("10s of suspend moved the deadline by %v", g.Until().Sub(until))
		}
		if _, err := g.Value(); err != nil {
			t.Errorf("within the lease: %v", err)
		}
		slept = time.Minute
		if _, err := g.Value(); !errors.Is(err, ErrLost) {
			t.Errorf("Value after a minute of suspend: %v, want ErrLost", err)
		}
		if cause := context.Cause(g.Context()); !errors.Is(cause, ErrLost) {
			t.Errorf("cause %v, want ErrLost", cause)
		}
		_ = g.Unlock()
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A renewal that got through after a short suspend counts from its own sending, by the clock as it is then.
func TestRenewalAfterSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(membackend.New(), Bare, Config{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var slept time.Duration
		l.core.asleep = func() time.Duration { return slept }
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		slept = 10 * time.Second
		if err := g.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(g.Until()); left != 29697*time.Millisecond {
			t.Errorf("%v left after the renewal, want 29.697s", left)
		}
		time.Sleep(time.Hour)
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		_ = l.Close(t.Context())
	})
}

// slowRenewal is a backend whose renewals do something on their way.
type slowRenewal struct {
	backend.Backend
	onTheWay func()
}

func (b slowRenewal) Renew(ctx context.Context, c backend.Claim) error {
	b.onTheWay()
	return b.Backend.Renew(ctx, c)
}

// The machine is suspended while a renewal is on its way, and wakes up past the deadline: the timers do not know yet, and the
// renewal's yes is about a lease that nobody may believe in any more.
// covers: B8, B13
func TestLateYesAfterSuspendDoesNotRevive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		b := slowRenewal{membackend.New(), func() { slept.Store(int64(time.Minute)) }}
		l, err := New(b, Bare, Config{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		l.core.asleep = func() time.Duration { return time.Duration(slept.Load()) }
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Check(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("Check: %v, want ErrLost", err)
		}
		<-g.Lost()
		if err := g.Unlock(); !errors.Is(err, ErrLost) {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		_ = l.Close(t.Context())
	})
}

func TestAsleepStandsStillWhileAwake(t *testing.T) {
	before := asleep()
	if after := asleep(); after < before-napless || after > before+napless {
		t.Errorf("slept from %v to %v between two calls", before, after)
	}
}
