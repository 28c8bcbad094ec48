package locker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
)

type turnBackend struct {
	backend.Backend
	renew func(context.Context, backend.Claim) error
}

func (b *turnBackend) Renew(ctx context.Context, c backend.Claim) error { return b.renew(ctx, c) }

// Whoever asked has set the renewal timer but has not given the turn back yet when the timer fires
// (here because it waits for life.mu; any preemption of over 1 ms does). renew finds the turn taken
// and returns, nobody sets the timer again, and the hold is lost at its deadline although the store
// is well.
func TestRenewalIsNotSwallowed(t *testing.T) {
	var down atomic.Bool
	var renews atomic.Int64
	b := &turnBackend{Backend: membackend.New()}
	l, err := New(b, Bare, Config{TTL: 600 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	b.renew = func(ctx context.Context, c backend.Claim) error {
		renews.Add(1)
		if down.CompareAndSwap(true, false) {
			l.core.mu.Lock() // stands for a descheduled goroutine
			time.AfterFunc(80*time.Millisecond, l.core.mu.Unlock)
			return errors.New("reset")
		}
		return b.Backend.Renew(ctx, c)
	}
	g, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	down.Store(true) // one renewal without an answer; the store is well ever after
	select {
	case <-g.Lost():
		t.Errorf("lost after one unanswered renewal; %d renewals were made in all", renews.Load())
	case <-time.After(2 * time.Second):
	}
	_ = g.Unlock()
	_ = l.Shutdown(context.Background())
}

// The answer takes longer than a third of the TTL, so the renewal timer is set to fire at once,
// while Check still has the turn.
func TestSlowCheckDoesNotEndRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		b := &turnBackend{Backend: membackend.New()}
		b.renew = func(ctx context.Context, c backend.Claim) error {
			err := b.Backend.Renew(ctx, c)
			if slow.CompareAndSwap(true, false) {
				time.Sleep(c.TTL / 2)
			}
			return err
		}
		l, err := New(b, Bare, Config{TTL: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			g, err := l.Lock(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			slow.Store(true)
			_ = g.Check(t.Context())
			time.Sleep(600 * time.Millisecond)
			if _, err := g.Value(); err != nil {
				t.Errorf("lost after a slow Check of a store that is well: %v", err)
			}
			_ = g.Unlock()
		}
		_ = l.Shutdown(context.Background())
	})
}

// The timer has fired for MaxHold when Unlock is quicker, and hands the lease on: it is renewed for
// the next hold.
func TestUnlockIsQuickerThanMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := membackend.New()
		l, err := New(store, Bare, Config{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		g, err := l.Lock(t.Context(), "k", MaxHold(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		turn := make(chan *Guard[struct{}], 1)
		go func() {
			next, err := l.Lock(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			turn <- next
		}()
		synctest.Wait()
		h := g.h
		// It has fired: tick has found that MaxHold is over, and has the mutex no more.
		h.lease.timer.Stop()
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		next := <-turn
		if next.h.lease != h.lease {
			t.Fatal("the lease was not handed on")
		}
		h.end(l.core.now(), ErrMaxHold) // what is left for tick to do
		h.lease.endRenewal(h)
		time.Sleep(10 * time.Minute)
		if _, err := next.Value(); err != nil {
			t.Errorf("the next hold after ten minutes: %v", err)
		}
		if err := errors.Join(next.Unlock(), l.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
}

// losing is a store that signals the loss of holds, and counts who is watched.
type losing struct {
	backend.Backend
	mu      sync.Mutex
	watched map[string]chan backend.Wake
}

func (b *losing) Capabilities() backend.Capabilities {
	caps := b.Backend.Capabilities()
	caps.Loss = true
	return caps
}

func (b *losing) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wake := make(chan backend.Wake, 1)
	b.watched[c.Key] = wake
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watched, c.Key)
	})
	return wake, nil
}

func (b *losing) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.watched)
}

// Of many leases some are watched, as each costs a goroutine, and others when those are over.
//
// covers: G5
func TestWatchedLeasesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := membackend.New()
		b := &losing{Backend: store, watched: map[string]chan backend.Wake{}}
		l, err := New(b, Bare, Config{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for i := range 2 * maxWatched {
			keys = append(keys, fmt.Sprint(i))
		}
		before := runtime.NumGoroutine()
		g, err := All(t.Context(), l, keys)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := b.count(); n != maxWatched {
			t.Errorf("%d leases are watched, want %d", n, maxWatched)
		}
		if n := runtime.NumGoroutine() - before; n > maxWatched+100 {
			t.Errorf("%d goroutines for %d leases", n, len(keys))
		}
		b.mu.Lock()
		var first []string
		for key := range b.watched {
			first = append(first, key)
		}
		b.mu.Unlock()
		for _, key := range first {
			if err := g.Guard(key).Unlock(); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := b.count(); n != maxWatched {
			t.Errorf("%d leases are watched when those before are over, want %d", n, maxWatched)
		}
		_ = g.Unlock()
		if err := l.Close(); err != nil || l.core.watched.Load() != 0 {
			t.Errorf("Close = %v, and %d are watched", err, l.core.watched.Load())
		}
		_ = store.Close()
	})
}

// A renewal that begins while an Unlock is at work reads nothing of the lease that handing it on
// writes. It shows under the race detector alone.
func TestRenewalBesideAHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renews atomic.Int64
		b := &turnBackend{Backend: membackend.New()}
		b.renew = func(ctx context.Context, c backend.Claim) error {
			renews.Add(1)
			<-ctx.Done()
			return ctx.Err()
		}
		l, err := New(b, Bare, Config{TTL: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan error, 1)
		go func() {
			g, err := l.Lock(t.Context(), "k")
			if err == nil {
				err = g.Unlock()
			}
			next <- err
		}()
		synctest.Wait() // it waits
		if err := g.h.atEnd(func(_ error, claim *backend.Claim) error {
			if claim != nil { // the lease is about to be handed on
				time.Sleep(1100 * time.Millisecond)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := g.Unlock(); err != nil {
			t.Errorf("Unlock = %v", err)
		}
		if err := <-next; err != nil {
			t.Errorf("the next one: %v", err)
		}
		if renews.Load() == 0 {
			t.Error("no renewal was under way")
		}
		_ = l.Shutdown(context.Background())
	})
}

// A Close that has run out of time stops the timers of the leases that it finds, also of one that
// was granted at that moment: so none is to be found before it has a timer.
//
// covers: G1, G2
func TestLeaseHasATimerBeforeItIsFound(t *testing.T) {
	b := membackend.New()
	defer b.Close()
	l, err := New(b, Bare, Config{})
	if err != nil {
		t.Fatal(err)
	}
	made := &lease{}
	w := &wait{core: l.core, prealloc: made}
	l.core.claim(t.Context(), opTry, "k", &l.core.defaults, &w.claim)
	l.core.mu.Lock() // where it is to be found
	granted := make(chan error, 1)
	go func() {
		_, err := w.attempt(t.Context(), b)
		granted <- err
	}()
	late := time.After(10 * time.Second) // it needs microseconds
	for timed := false; !timed; runtime.Gosched() {
		select {
		case <-late:
			t.Error("it has no timer, and waits for the mutex to be found")
			timed = true
		default:
			made.mu.Lock()
			timed = made.timer != nil
			made.mu.Unlock()
		}
	}
	l.core.mu.Unlock()
	if err := <-granted; err != nil {
		t.Error(err)
	}
	if n := len(l.core.allLeases()); n != 1 {
		t.Errorf("%d leases are found, want the one that was granted", n)
	}
	if err := errors.Join(made.release(t.Context(), nil, nil), l.Close()); err != nil {
		t.Error(err)
	}
}
