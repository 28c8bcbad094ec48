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

// A laptop is closed for a minute: the monotonic clock, and with it every timer, stands still, but
// the store's lease does not.
// covers: B13
func TestSuspendedTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(membackend.New(), Bare, Config{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var slept time.Duration
		l.core.suspended = func(time.Time) time.Duration { return slept }
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
		if err := l.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A renewal that got through after a short suspend counts from its own sending, by the clock as it
// is then.
func TestRenewalAfterSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(membackend.New(), Bare, Config{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var slept time.Duration
		l.core.suspended = func(time.Time) time.Duration { return slept }
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
		_ = l.Shutdown(t.Context())
	})
}

// slow is a backend whose requests meet something on their way.
type slow struct {
	backend.Backend
	onTheWay func()
}

func (b slow) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	b.onTheWay()
	return b.Backend.TryAcquire(ctx, c)
}

func (b slow) Renew(ctx context.Context, c backend.Claim) error {
	b.onTheWay()
	return b.Backend.Renew(ctx, c)
}

// The machine is suspended while a renewal is in flight, and wakes up past the deadline: the
// timers do not know yet, and the renewal's yes is about a lease that nobody may believe in any
// more, also when the lease that it extended would last for a while yet.
// covers: B8, B13
func TestLateYesAfterSuspendDoesNotRevive(t *testing.T) {
	for _, nap := range []time.Duration{time.Minute, 25 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var slept atomic.Int64
			suspend := new(false)
			b := slow{membackend.New(), func() {
				if *suspend {
					slept.Store(int64(nap))
				}
			}}
			l, err := New(b, Bare, Config{TTL: 30 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			l.core.suspended = func(time.Time) time.Duration { return time.Duration(slept.Load()) }
			g, err := l.Lock(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(8 * time.Second)
			*suspend = true
			if err := g.Check(t.Context()); !errors.Is(err, ErrLost) {
				t.Fatalf("Check after %v: %v, want ErrLost", nap, err)
			}
			<-g.Lost()
			if err := g.Unlock(); !errors.Is(err, ErrLost) {
				t.Errorf("Unlock after %v: %v, want ErrLost", nap, err)
			}
			_ = l.Shutdown(t.Context())
		})
	}
}

// The machine is suspended between the attempt and the grant: the lease began before.
// covers: B13
func TestSuspendDuringTheRequestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		nap := 10 * time.Second
		b := slow{membackend.New(), func() { slept.Add(int64(nap)) }}
		l, err := New(b, Bare, Config{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		l.core.suspended = func(time.Time) time.Duration { return time.Duration(slept.Load()) }
		start := time.Now()
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if want := start.Add(29697*time.Millisecond - nap); !g.Until().Equal(want) {
			t.Errorf("deadline %v after the attempt, want %v", g.Until().Sub(start),
				want.Sub(start))
		}
		nap = 20 * time.Second // more than half the TTL: such a grant is asked for again, and again
		if _, err := l.TryLock(t.Context(), "other"); !errors.Is(err, errSlow) {
			t.Errorf("grant after a long suspend: %v, want errSlow", err)
		}
		_ = g.Unlock()
		_ = l.Shutdown(t.Context())
	})
}

// A deadline that has passed while the machine slept is a loss, also if Unlock is the first to look
// at the clock.
// covers: B13
func TestUnlockAfterAnUnnoticedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(membackend.New(), Bare, Config{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var slept time.Duration
		l.core.suspended = func(time.Time) time.Duration { return slept }
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		slept = time.Minute
		if err := g.Unlock(); !errors.Is(err, ErrLost) {
			t.Errorf("Unlock after the deadline = %v, want ErrLost: work may have overlapped", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
