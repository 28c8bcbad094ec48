package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/waiting"
)

// handedOver is a lease that was granted, and the hold that its next owner, who was slow to come,
// makes of it.
func handedOver(t *testing.T, c *core, slow time.Duration) *hold {
	t.Helper()
	if !c.enter() {
		t.Fatal("closed")
	}
	l, err := c.obtain(t.Context(), opLock, Hold{Key: "k"}, &call{ttl: c.cfg.TTL})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(slow)
	return c.newHold(t.Context(), l, Hold{Key: "k"}, ignore, &call{}, nil)
}

// Whoever has been handed a lease may be slow to take it up: the lease is then renewed at once, or
// was lost on the way.
// covers: B13
func TestSlowHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &turnBackend{Backend: membackend.New()}
		b.renew = b.Backend.Renew
		l, err := New(b, Bare, Config{TTL: 9 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, slow := range []time.Duration{time.Second, 4 * time.Second, 8 * time.Second} {
			k := handedOver(t, l.core, slow)
			time.Sleep(time.Hour)
			if err := k.valid(); err != nil {
				t.Errorf("taken up after %v: %v", slow, err)
			}
			if err := k.unlock(byUnlock, nil); err != nil {
				t.Error(err)
			}
		}
		b.renew = func(context.Context, backend.Claim) error { return errors.New("no answer") }
		k := handedOver(t, l.core, time.Minute)
		if err := k.valid(); !errors.Is(err, ErrLost) {
			t.Errorf("taken up after the lease was over: %v", err)
		}
		_ = k.unlock(byUnlock, nil)
		alone, err := l.TryLock(t.Context(), "another")
		if err != nil || alone.Unlock() != nil {
			t.Errorf("trylock, and unlock: %v", err)
		}
		if err := l.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(l.core.alone) + len(l.core.cohorts); n != 0 {
			t.Errorf("%d leases and cohorts are left", n)
		}
	})
}

// A lease is handed on at a moment when its renewal is under way, and told to stop: the next
// holder's goes on.
// covers: B2
func TestRenewalDuringUnlockGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &turnBackend{Backend: membackend.New()}
		var renews atomic.Int64
		b.renew = func(ctx context.Context, c backend.Claim) error {
			if renews.Add(1) == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return b.Backend.Renew(ctx, c)
		}
		l, err := New(b, Bare, Config{
			TTL:  30 * time.Second,
			Wait: waiting.Config{PassTime: time.Hour},
		})
		if err != nil {
			t.Fatal(err)
		}
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan *Guard[struct{}])
		go func() {
			n, err := l.Lock(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			next <- n
		}()
		for renews.Load() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		n := <-next
		if n.h.lease != g.h.lease {
			t.Error("the lease was not handed on")
		}
		time.Sleep(time.Hour)
		if err := n.Unlock(); err != nil {
			t.Errorf("an hour later: %v", err)
		}
		_ = l.Shutdown(t.Context())
	})
}

// A client that locks a million keys does not remember them all.
func TestHoldTimesForget(t *testing.T) {
	var p holdTimes
	now := time.Now()
	for i := range 3 * holdTimeKeys {
		p.remember(fmt.Sprint(i)).add(1, time.Second, now)
	}
	if n := p.count.Load(); n != holdTimeKeys {
		t.Errorf("%d keys remembered, want %d", n, holdTimeKeys)
	}
	p.remember("k").add(1, time.Second, now)
	p.remember("k").add(64, 64*time.Hour, now)
	if d := p.of("k").guess(now); d < 59*time.Minute || d > time.Hour {
		t.Errorf("%v after 64 holds of an hour", d)
	}
	p.remember("old").add(1, time.Hour, now.Add(-5*time.Hour))
	if d := p.of("old").guess(now); d != 0 {
		t.Errorf("%v of what was seen long ago", d)
	}
}

// A store that answers a part of the renewals in time keeps that part of the leases, and none of
// its answers is spent on a lease that is over.
func TestRenewalsBeyondWhatTheStoreCanTake(t *testing.T) {
	// It can take 1000/s: about 2000 leases.
	const leases, each, ttl = 3000, time.Millisecond, 6 * time.Second
	synctest.Test(t, func(t *testing.T) {
		b := &turnBackend{Backend: membackend.New()}
		server := make(chan struct{}, 1) // one request after the other
		var under sync.WaitGroup
		b.renew = func(ctx context.Context, c backend.Claim) error {
			answer := make(chan error, 1)
			under.Go(func() { // executed, whether or not anybody still waits for it
				server <- struct{}{}
				time.Sleep(each)
				answer <- b.Backend.Renew(context.WithoutCancel(ctx), c)
				<-server
			})
			select {
			case err := <-answer:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		l, err := New(b, Bare, Config{TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var held []*Guard[struct{}]
		for i := range leases {
			g, err := l.Lock(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, g)
		}
		time.Sleep(time.Minute)
		good := 0
		for _, g := range held {
			if g.h.valid() == nil {
				good++
			}
		}
		if good < 1600 {
			t.Errorf("%d of %d leases are left of a store that can renew about 2000", good, leases)
		}
		for _, g := range held {
			_ = g.Unlock()
		}
		under.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// When more renewals are due than may be in flight, the one whose lease ends first is sent first,
// and not the one that became due first.
// covers: B2
func TestRenewalsInTheOrderOfTheirDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &turnBackend{Backend: membackend.New()}
		sent, answer := make(chan string, 3), make(chan struct{})
		b.renew = func(ctx context.Context, c backend.Claim) error {
			sent <- c.Key
			<-answer
			return b.Backend.Renew(ctx, c)
		}
		l, err := New(b, Bare, Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		l.core.renewals.sent = maxRenewals // stands for as many that are in flight
		var held []*Guard[struct{}]
		lock := func(key string, ttl time.Duration) {
			g, err := l.Lock(t.Context(), key, TTL(ttl))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, g)
		}
		lock("due first", 100*time.Second) // after 30 to 37 seconds, ends after 100
		time.Sleep(19 * time.Second)
		lock("due next", time.Minute) // after 37 to 41, ends after 79
		time.Sleep(16 * time.Second)
		lock("due last", 30*time.Second) // after 44 to 46, ends after 65
		time.Sleep(12 * time.Second)
		if len(sent) > 0 {
			t.Fatalf("%d are in flight, and %q as well", maxRenewals, <-sent)
		}
		var order []string
		for n := range int64(3) {
			l.core.renewals.settle(n + 1)
			order = append(order, <-sent)
		}
		if !slices.Equal(order, []string{"due last", "due next", "due first"}) {
			t.Errorf("renewed in the order %q", order)
		}
		close(answer)
		for _, g := range held {
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
		}
		_ = l.Close()
	})
}
