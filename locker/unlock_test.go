package locker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// covers: C5
func TestUnlockAfterCancellationReleases(t *testing.T) {
	b := hook()
	b.release = func(ctx context.Context, c backend.Claim) error {
		if err := ctx.Err(); err != nil {
			t.Errorf("released under a dead ctx: %v", err)
		}
		return storetest.Release(ctx, b.Backend, c)
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		ctx, cancel := context.WithCancel(t.Context())
		g, err := l.Lock(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		<-g.Context().Done() // a child of ctx
		time.Sleep(time.Hour)
		if _, err := g.Value(); err != nil {
			t.Errorf("ctx bounds the wait, not the hold: %v", err)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		wantHeld(t, b, "k", false)
	})
}

// covers: C7, C11
func TestUnlockIsIdempotent(t *testing.T) {
	b := hook()
	b.release = func(ctx context.Context, c backend.Claim) error {
		time.Sleep(time.Second)
		return storetest.Release(ctx, b.Backend, c)
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if err := g.Unlock(); err != nil {
					t.Error(err)
				}
				wantHeld(t, b, "k", false) // no call returns before the release
			})
		}
		all.Wait()
		next := mustLock(t, l, "k")
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		wantHeld(t, b, "k", true) // the next holder is untouched
		if n := b.releases.Load(); n != 1 {
			t.Errorf("%d releases, want 1", n)
		}
		_ = next.Unlock()
	})
}

// covers: C3
func TestUnlockOfATakenLockSaysSo(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		// An operator freed it.
		b.release = func(context.Context, backend.Claim) error { return backend.ErrLost }
		wantErr(t, g.Unlock(), locker.ErrLost, backend.ErrLost)
	})
}

// The release was executed, its reply lost; the repeat finds nothing to release. That is a success.
// covers: C4
func TestUnlockAfterALostReply(t *testing.T) {
	b := hook()
	b.release = func(ctx context.Context, c backend.Claim) error {
		_, err := b.Backend.Release(ctx, c)
		if b.releases.Load() == 1 {
			return errSilence
		}
		return err
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		if err := mustLock(t, l, "k").Unlock(); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	})
}

// covers: C4
func TestUnlockIsBounded(t *testing.T) {
	for _, answer := range []error{errSilence, backend.ErrUnavailable} {
		b := hook()
		b.release = func(context.Context, backend.Claim) error { return answer }
		cfg := locker.Config{TTL: 30 * time.Second, ReleaseTimeout: 3 * time.Second}
		bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			start := time.Now()
			err := g.Unlock()
			wantErr(t, err, answer)
			if errors.Is(err, locker.ErrLost) {
				t.Error("no answer was taken for a loss")
			}
			if d := time.Since(start); d < 2*time.Second || d > 3*time.Second {
				t.Errorf("Unlock took %v of its 3s", d)
			}
			time.Sleep(30 * time.Second)
			wantHeld(t, b, "k", false) // not renewed after Unlock
		})
	}
}

// An Unlock that only releases gives up early, as the lease ends by itself; one that leaves
// something in the store does not.
//
// covers: C4
func TestUnlockGivesUp(t *testing.T) {
	// After a while, which counts from the first time on.
	refuse := func(ctx context.Context, _ backend.Claim) error {
		select {
		case <-time.After(700 * time.Millisecond):
			return backend.ErrUnavailable
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for name, test := range map[string]struct {
		cfg  locker.Config
		opts []locker.Option
		want time.Duration
	}{
		"by default":         {locker.Config{}, nil, 5 * time.Second},
		"with a short lease": {locker.Config{TTL: 2 * time.Second}, nil, 2 * time.Second},
		"as configured": {
			locker.Config{ReleaseTimeout: 8 * time.Second},
			nil,
			8 * time.Second,
		},
		"with a job's mark": {
			locker.Config{TTL: time.Minute},
			[]locker.Option{locker.OncePer(time.Hour)},
			30 * time.Second,
		},
		"… and a shorter lease": {
			locker.Config{TTL: 20 * time.Second},
			[]locker.Option{locker.OncePer(time.Hour)},
			20 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, _, release := switchable()
			bubble(t, b, test.cfg, func(t *testing.T, l *locker.Client[struct{}]) {
				g, err := l.TryLock(t.Context(), "k", test.opts...)
				if err != nil {
					t.Fatal(err)
				}
				release(refuse)
				began := time.Now()
				wantErr(t, g.Unlock(), backend.ErrUnavailable)
				if took := time.Since(began); took != test.want {
					t.Errorf("Unlock took %v, want %v", took, test.want)
				}
				release(nil)
			})
		})
	}
	b, _, release := switchable()
	stock(t, b, locker.Config{TTL: time.Minute}, func(t *testing.T, s *locker.Store[int]) {
		release(refuse)
		began := time.Now()
		if err := s.Update(t.Context(), "k", func(_ context.Context, v int) (int, error) {
			return v + 1, nil
		}); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("Update = %v", err)
		}
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("a value is saved for %v, want 30s", took)
		}
		release(nil)
	})
}

// The request that the timeout cuts short says nothing about the store; the one before it does.
func TestUnlockSaysWhyTheStoreDidNotAnswer(t *testing.T) {
	b := hook()
	b.release = func(ctx context.Context, _ backend.Claim) error {
		if b.releases.Load() < 3 {
			return backend.ErrUnavailable
		}
		<-ctx.Done()
		return ctx.Err()
	}
	bubble(t, b, locker.Config{ReleaseTimeout: 3 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			err := mustLock(t, l, "k").Unlock()
			// A fourth begins behind the caller as the third ends.
			if wantErr(t, err, backend.ErrUnavailable); b.releases.Load() < 3 {
				t.Errorf("%d releases, %v", b.releases.Load(), err)
			}
		})
}

// covers: B3, G2
func TestDroppedGuardIsNoticed(t *testing.T) {
	b := hook()
	var out output
	cfg := locker.Config{TTL: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil))}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		ctx, lost := workedOn(t, l)
		awaitLeak(t, mustLock(t, l, "k").Lost())
		time.Sleep(time.Second)
		wantHeld(t, b, "k", true) // not released: copies of the value may still be in use
		time.Sleep(10 * time.Second)
		wantHeld(t, b, "k", false)
		wantHeld(t, b, "worked-on", true) // its context is still in use
		if s := out.String(); !strings.Contains(s, "without Unlock") ||
			!strings.Contains(s, "main_test.go:") ||
			!strings.Contains(s, "key=k") || strings.Contains(s, "worked-on") {
			t.Errorf("the log does not name the leak and its caller:\n%s", s)
		}
		runtime.KeepAlive(ctx)
		awaitLeak(t, lost) // now it is not
	})
}

// A wait under a guard's Context that is over keeps the guard from being dropped no longer, also
// while the key goes from hand to hand in this process.
func TestDroppedGuardUnderWhichSomebodyWaited(t *testing.T) {
	cfg := locker.Config{
		TTL: 10 * time.Second, Wait: waiting.Config{PassTime: time.Hour},
		Logger: slog.New(slog.DiscardHandler),
	}
	bubble(t, hook(), cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		first := mustLock(t, l, "busy")
		lost, second, third := make(chan (<-chan struct{}), 1), make(chan struct{}),
			make(chan *locker.Guard[struct{}])
		go func() {
			g := mustLock(t, l, "k")
			lost <- g.Lost()
			under, err := l.Lock(g.Context(), "busy")
			if err != nil {
				t.Error(err)
				return
			}
			<-second
			if err := under.Unlock(); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		go func() { third <- mustLock(t, l, "busy") }()
		synctest.Wait()
		if err := first.Unlock(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		close(second)
		g := <-third
		awaitLeak(t, <-lost)
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// output is a bytes.Buffer for several goroutines.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// workedOn drops a guard whose context is in use.
func workedOn(t *testing.T, l locker.Locker[struct{}]) (context.Context, <-chan struct{}) {
	g := mustLock(t, l, "worked-on")
	return g.Context(), g.Lost()
}

// awaitLeak has the collector run until a dropped guard is noticed. It runs in real time, which a
// bubble cannot wait for.
func awaitLeak(t *testing.T, lost <-chan struct{}) {
	t.Helper()
	for range 1000 {
		runtime.GC()
		time.Sleep(3 * time.Second)
		select {
		case <-lost:
			return
		default:
		}
	}
	t.Fatal("a dropped guard is still renewed")
}

// The store refused the first release, so it was not executed; the second finds the lock gone. So
// it was gone before Unlock: that is a loss, and not the late answer to the first.
// covers: C3
func TestUnlockRefusedAndThenLost(t *testing.T) {
	b := hook()
	b.release = func(context.Context, backend.Claim) error {
		if b.releases.Load() == 1 {
			return backend.ErrUnavailable
		}
		return backend.ErrLost
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		wantErr(t, mustLock(t, l, "k").Unlock(), locker.ErrLost, backend.ErrLost)
		if n := b.releases.Load(); n != 2 {
			t.Errorf("%d releases, want 2", n)
		}
	})
}

// A release that is not answered is repeated behind the caller for as long as the lease may last,
// however long that is.
//
// covers: C4
func TestReleaseIsRepeatedUntilTheLeaseEnds(t *testing.T) {
	const ttl = time.Hour
	b := hook()
	var silent atomic.Bool
	b.release = func(ctx context.Context, c backend.Claim) error {
		if silent.Load() {
			return errSilence
		}
		return storetest.Release(ctx, b.Backend, c)
	}
	bubble(t, b, locker.Config{TTL: ttl}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		silent.Store(true)
		wantErr(t, g.Unlock(), errSilence)
		time.Sleep(ttl - 5*time.Minute)
		wantHeld(t, b, "k", true)
		silent.Store(false)
		time.Sleep(4 * time.Minute) // the lease goes on
		wantHeld(t, b, "k", false)
	})
}
