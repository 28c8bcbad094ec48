package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
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
			if err := k.unlock(); err != nil {
				t.Error(err)
			}
		}
		b.renew = func(context.Context, backend.Claim) error { return errors.New("no answer") }
		k := handedOver(t, l.core, time.Minute)
		if err := k.valid(); !errors.Is(err, ErrLost) {
			t.Errorf("taken up after the lease was over: %v", err)
		}
		_ = k.unlock()
		if err := l.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(l.core.leases) + len(l.core.cohorts); n != 0 {
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
		l, err := New(b, Bare, Config{TTL: 30 * time.Second, Wait: waiting.Config{PassTime: time.Hour}})
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
		p.add(fmt.Sprint(i), 1, time.Second, now)
	}
	if n := len(p.keys); n != holdTimeKeys {
		t.Errorf("%d keys remembered, want %d", n, holdTimeKeys)
	}
	p.add("k", 1, time.Second, now)
	p.add("k", 64, 64*time.Hour, now)
	if d := p.of("k"); d < 59*time.Minute || d > time.Hour {
		t.Errorf("%v after 64 holds of an hour", d)
	}
	p.add("old", 1, time.Hour, now.Add(-5*time.Hour))
	if d := p.of("old"); d != 0 {
		t.Errorf("%v of what was seen long ago", d)
	}
}

// A program that does nothing else collects its garbage now and then while a lock is held, so that
// a guard that was dropped is noticed; one that allocates does so by itself.
// covers: B14
func TestIdleProgramCollectsGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		runGC = func() { runs.Add(1) }
		defer func() { runGC = runtime.GC }()
		l, err := New(membackend.New(), Bare, Config{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if n := runs.Load(); n < 3 || n > 10 {
			t.Errorf("%d collections in five minutes, want one each half minute or so", n)
		}
		_ = g.Unlock()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A store that answers a part of the renewals in time keeps that part of the leases, and none of
// its answers is spent on a lease that is over.
func TestRenewalsBeyondWhatTheStoreCanTake(t *testing.T) {
	const leases, each, ttl = 3000, time.Millisecond, 6 * time.Second // it can take 1000/s: about 2000 leases
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
