package locker_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// queued is a backend with a line. Another holds, with token 5; some time after we stand in line, w
// comes.
func queued(after time.Duration, w backend.Wake) *hooked {
	b := plain()
	b.caps.Queue = true
	b.acquire = func(_ context.Context, c backend.Claim) (backend.Grant, error) {
		if b.acquires.Load() > 2 { // not the first attempt, and not the one after subscribing
			return backend.Grant{Token: 9, TTL: c.TTL}, nil
		}
		return backend.Grant{}, &backend.HeldError{Position: 1, Token: 5}
	}
	b.watch = func(context.Context, backend.Claim) (<-chan backend.Wake, error) {
		wake := make(chan backend.Wake, 1)
		time.AfterFunc(after, func() { wake <- w })
		return wake, nil
	}
	b.renew = func(context.Context, backend.Claim) error { return nil }
	b.release = func(context.Context, backend.Claim) error { return nil }
	return b
}

func granted(token uint64, ttl time.Duration) backend.Wake {
	return backend.Wake{Granted: true, Grant: backend.Grant{Token: token, TTL: ttl}}
}

// handOff locks on a queued backend, and returns the guard, when the wait began, and how many
// attempts it took.
func handOff(t *testing.T, l *locker.Client[struct{}], b *hooked,
	after time.Duration,
) (g *locker.Guard[struct{}], began time.Time, asked int64) {
	t.Helper()
	began = time.Now()
	g = mustLock(t, l, "k")
	if d := time.Since(began); d != after {
		t.Errorf("granted after %v, want with the signal at %v", d, after)
	}
	return g, began, b.acquires.Load()
}

// WaiterTTL 30s.
var fallback = locker.Config{
	TTL:  30 * time.Second,
	Wait: waiting.Config{Fallback: 10 * time.Second},
}

// A grant that comes with the wake-up needs no attempt; its lease counts from the last one that
// was answered.
func TestHandOverIsBelievedFromTheLastAnswer(t *testing.T) {
	b := queued(7*time.Second, granted(6, 30*time.Second))
	bubble(t, b, fallback, func(t *testing.T, l *locker.Client[struct{}]) {
		g, began, asked := handOff(t, l, b, 7*time.Second)
		if asked != 2 || g.Hold().Token != 6 {
			t.Errorf("%d attempts, token %d; want 2 and the token of the hand-over, 6", asked,
				g.Hold().Token)
		}
		want := began.Add(30*time.Second - 300*time.Millisecond - 3*time.Millisecond)
		if !g.Until().Equal(want) {
			t.Errorf("good until %v after the wait began, want %v", g.Until().Sub(began),
				want.Sub(began))
		}
		time.Sleep(time.Until(began.Add(20 * time.Second)))
		if b.renews.Load() == 0 {
			t.Error("a short lease was not renewed early")
		}
		time.Sleep(time.Hour)
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A message that was late, about a grant that was made (and may have lapsed) before our last
// attempt, proves nothing.
// covers: W12, W9
func TestLateHandOverIsNotBelieved(t *testing.T) {
	for _, token := range []uint64{4, 5} {
		b := queued(time.Second, granted(token, 30*time.Second))
		bubble(t, b, fallback, func(t *testing.T, l *locker.Client[struct{}]) {
			g, _, asked := handOff(t, l, b, time.Second)
			if asked != 3 || g.Hold().Token != 9 {
				t.Errorf("token %d of an old grant was believed: hold %+v after %d attempts", token,
					g.Hold(), asked)
			}
			_ = g.Unlock()
		})
	}
}

// A lease that has little left is asked for, which extends it.
func TestHandOverWithLittleLeftIsClaimed(t *testing.T) {
	b := queued(7*time.Second, granted(6, 9*time.Second))
	bubble(t, b, fallback, func(t *testing.T, l *locker.Client[struct{}]) {
		g, _, asked := handOff(t, l, b, 7*time.Second)
		if asked != 3 || time.Until(g.Until()) < 29*time.Second {
			t.Errorf("a lease of 9s that may have begun 7s ago was believed; %v left",
				time.Until(g.Until()))
		}
		_ = g.Unlock()
	})
}

// The attempt after the hand-over may be in flight when ctx ends: Release passes the grant on.
// covers: W7, W8
func TestQueuedClaimLeavesTheLine(t *testing.T) {
	b := queued(time.Hour, backend.Wake{})
	bubble(t, b, fallback, func(t *testing.T, l *locker.Client[struct{}]) {
		_, err := l.Lock(t.Context(), "k", locker.WaitLimit(time.Second))
		wantErr(t, err, locker.ErrNotAcquired, context.DeadlineExceeded, backend.ErrHeld)
		if b.releases.Load() != 1 {
			t.Error("a claim was left standing in line")
		}
	})
}

func TestOnlyLockStandsInLine(t *testing.T) {
	b := queued(time.Hour, backend.Wake{})
	var claims []backend.Claim
	b.acquire = func(_ context.Context, c backend.Claim) (backend.Grant, error) {
		claims = append(claims, c)
		return backend.Grant{Token: 1, TTL: c.TTL}, nil
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		_ = mustLock(t, l, "a").Unlock()
		if g, err := l.TryLock(t.Context(), "b"); err != nil {
			t.Error(err)
		} else {
			_ = g.Unlock()
		}
		if !claims[0].Queue || claims[0].WaiterTTL != 3*waiting.DefaultFallback || claims[1].Queue {
			t.Errorf("Lock %+v\nTryLock %+v", claims[0], claims[1])
		}
	})
	bubble(t, b, locker.Config{Wait: waiting.Config{Mode: waiting.Notify}},
		func(t *testing.T, l *locker.Client[struct{}]) {
			_ = mustLock(t, l, "a").Unlock()
			if claims[2].Queue {
				t.Error("stood in line in mode notify")
			}
		})
}
