package locker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// silentFor has the store answer no renewal of the claim that the next Lock makes; others' it
// renews.
func silentFor(b *hooked, renew func(verb)) {
	var first atomic.Pointer[backend.Claim]
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		first.CompareAndSwap(nil, &c)
		return b.Backend.TryAcquire(ctx, c)
	}
	renew(func(ctx context.Context, c backend.Claim) error {
		if c.Owner == first.Load().Owner {
			return errSilence
		}
		return b.Backend.Renew(ctx, c)
	})
}

// An Unlock gives up half-way through a failover, and the key is free soon after it, long before
// its lease would be over: the release goes on behind the caller. Close waits for it, or counts it.
//
// covers: C4, C10
func TestUnlockThatGaveUpGoesOnBehindTheCaller(t *testing.T) {
	away := func(context.Context, backend.Claim) error { return backend.ErrUnavailable }
	for name, back := range map[string]bool{"the store is back": true, "it stays away": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _, release := switchable()
				l := start(t, b, locker.Config{
					TTL:    time.Hour,
					Logger: slog.New(slog.DiscardHandler),
				})
				g := mustLock(t, l, "k")
				release(away)
				began := time.Now()
				wantErr(t, g.Unlock(), backend.ErrUnavailable)
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("Unlock took %v, want 5s", took)
				}
				wantHeld(t, b, "k", true)
				if !back {
					err := l.Close()
					if err == nil || !strings.Contains(err.Error(), "1 releases not confirmed") {
						t.Errorf("Close = %v, want the release that the store did not confirm", err)
					}
					return
				}
				time.Sleep(10*time.Second - time.Since(began))
				release(nil)
				time.Sleep(10 * time.Second)
				wantHeld(t, b, "k", false)
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What was opened for a hold that ended meanwhile is closed, once, before its Lock fails: so it is
// not in the way of the next.
func TestScopedClosesWhatWasOpenedTooLate(t *testing.T) {
	for name, end := range map[string]struct {
		opts []locker.Option
		do   func(renew func(verb), l *locker.Client[int])
		why  error
	}{
		"loss": {nil, func(renew func(verb), _ *locker.Client[int]) {
			renew(func(context.Context, backend.Claim) error { return errSilence })
		}, locker.ErrLost},
		"MaxHold": {
			[]locker.Option{locker.MaxHold(time.Second)},
			func(func(verb), *locker.Client[int]) {}, locker.ErrMaxHold,
		},
		"Close": {nil, func(_ func(verb), l *locker.Client[int]) {
			go l.Close()
		}, locker.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, renew, _ := switchable()
				errFlush := errors.New("could not flush")
				v := &valve{closing: func() error { return errFlush }}
				var l *locker.Client[int]
				l, err := locker.New(b, locker.Scoped(
					func(ctx context.Context, _ locker.Hold) (int, error) {
						v.opened.Add(1)
						end.do(renew, l)
						<-ctx.Done()
						return 1, nil
					},
					func(int) error { v.closed.Add(1); return v.closing() },
				), locker.Config{TTL: time.Minute, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				_, err = l.Lock(t.Context(), "k", end.opts...)
				wantErr(t, err, locker.ErrNotAcquired, end.why, errFlush)
				v.want(t, 1, 1)
				renew(nil)
				v.closing = nil
				other, err := locker.New(b, v.bind(), locker.Config{TTL: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				if g, err := other.Lock(ctx, "k"); err != nil {
					t.Errorf("the next Lock: %v", err)
				} else if err := g.Unlock(); err != nil {
					t.Error(err)
				}
				v.want(t, 2, 2)
				for _, l := range []*locker.Client[int]{l, other} {
					if err := l.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
				}
			})
		})
	}
}

// Of two Clients of a Backend one is granted the key that the other has lost: it opens nothing
// until what the other had opened is closed.
func TestScopedNextOfAnotherClientWaitsForTheLast(t *testing.T) {
	b, renew, _ := switchable()
	v := &valve{closing: func() error { time.Sleep(10 * time.Minute); return nil }}
	cfg := locker.Config{TTL: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	scoped(t, b, cfg, v, func(t *testing.T, l *locker.Client[int]) {
		other, err := locker.New(b, v.bind(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		silentFor(b, renew)
		g := mustScope(t, l, "k")
		locked := make(chan *locker.Guard[int])
		go func() { locked <- mustScope(t, other, "k") }()
		time.Sleep(5 * time.Minute) // the lease is long over, and the key the other's
		synctest.Wait()
		wantErr(t, context.Cause(g.Context()), locker.ErrLost)
		wantHeld(t, b, "k", true)
		v.want(t, 1, 0)
		v.closing = nil
		next := <-locked
		v.want(t, 2, 1)
		if err := next.Unlock(); err != nil {
			t.Error(err)
		}
		wantErr(t, g.Unlock(), locker.ErrLost)
		v.want(t, 2, 2)
		if err := other.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// A permit is lost while what it protects is being closed: the next holder has the permit, and
// opens nothing until that is closed.
func TestScopedPermitWaitsForWhatIsBeingClosed(t *testing.T) {
	b, renew, _ := switchable()
	v := &valve{closing: func() error { time.Sleep(10 * time.Minute); return nil }}
	cfg := locker.Config{TTL: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	scoped(t, b, cfg, v, func(t *testing.T, l *locker.Client[int]) {
		silentFor(b, renew)
		g := mustScope(t, l, "k", locker.Permit(1))
		unlocked, locked := make(chan error), make(chan *locker.Guard[int])
		go func() { unlocked <- g.Unlock() }()
		go func() { locked <- mustScope(t, l, "k", locker.Permit(1)) }()
		time.Sleep(5 * time.Minute) // the lease is long over, and the permit the next one's
		synctest.Wait()
		wantHeld(t, b, "k", true)
		v.want(t, 1, 0)
		v.closing = nil
		next := <-locked
		wantErr(t, <-unlocked, locker.ErrLost)
		v.want(t, 2, 1)
		if err := next.Unlock(); err != nil {
			t.Error(err)
		}
		v.want(t, 2, 2)
	})
}

// Close runs out of time while an Unlock closes what the hold protects. By the time it is closed
// another process has the key: that is a loss, though the Unlock began in time.
//
// covers: C3
func TestUnlockAfterCloseThatClosesForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, v := hook(), &valve{closing: func() error { time.Sleep(15 * time.Second); return nil }}
		cfg := locker.Config{TTL: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)}
		l, err := locker.New(b, v.bind(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		g, other := mustScope(t, l, "k"), start(t, b.Backend, cfg)
		closed, unlocked := make(chan error, 1), make(chan error, 1)
		go func() { closed <- l.Close() }()
		<-g.Context().Done()
		go func() { unlocked <- g.Unlock() }()
		next := mustLock(t, other, "k")
		wantErr(t, <-closed, context.DeadlineExceeded)
		v.want(t, 1, 0) // the other process has the key, and this is still open
		wantErr(t, <-unlocked, locker.ErrLost, locker.ErrClosed)
		v.want(t, 1, 1)
		wantHeld(t, b, "k", true)
		if err := next.Unlock(); err != nil {
			t.Error(err)
		}
		if err := other.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// A hold of a permit that is over by a loss or by MaxHold, and has not been unlocked, is waited for
// while it is closed: by then its lease may have run out, and the store has the permit for the
// next.
//
// covers: B1
func TestScopedPermitWaitsForAHoldThatIsOver(t *testing.T) {
	for _, way := range []string{"loss", "MaxHold"} {
		t.Run(way, func(t *testing.T) {
			b, renew, _ := switchable()
			v := &valve{closing: func() error { time.Sleep(10 * time.Minute); return nil }}
			cfg := locker.Config{TTL: time.Minute, Logger: slog.New(slog.DiscardHandler)}
			scoped(t, b, cfg, v, func(t *testing.T, l *locker.Client[int]) {
				opts := []locker.Option{locker.Permit(1)}
				if way == "loss" {
					silentFor(b, renew)
				} else {
					opts = append(opts, locker.MaxHold(time.Second))
				}
				g := mustScope(t, l, "k", opts...)
				locked := make(chan *locker.Guard[int])
				go func() { locked <- mustScope(t, l, "k", locker.Permit(1)) }()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				wantHeld(t, b, "k", true)
				v.want(t, 1, 0)
				next := <-locked
				v.want(t, 2, 1)
				_ = next.Unlock()
				_ = g.Unlock()
			})
		})
	}
}
