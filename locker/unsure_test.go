package locker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

// A reply is lost after the store has executed the request: the next attempt finds our own lock,
// which is ours.
// covers: A2, A3
func TestLostReplyIsNotTaken(t *testing.T) {
	for _, op := range []string{"Lock", "TryLock"} {
		b := hook()
		b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
			g, err := b.Backend.TryAcquire(ctx, c)
			if b.acquires.Load() == 1 {
				return backend.Grant{}, errSilence
			}
			return g, err
		}
		bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
			lock := l.Lock
			if op == "TryLock" {
				lock = l.TryLock
			}
			g, err := lock(t.Context(), "k")
			if err != nil {
				t.Fatalf("%s: %v", op, err)
			}
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
			wantHeld(t, b, "k", false)
		})
	}
}

// Every reply is lost: the call fails, and what it was granted is given back.
// covers: A2, A4, X10
func TestUnansweredClaimIsWithdrawn(t *testing.T) {
	b := hook()
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		_, _ = b.Backend.TryAcquire(ctx, c)
		return backend.Grant{}, errSilence
	}
	b.release = func(ctx context.Context, c backend.Claim) error {
		if c.NoneInFlight {
			t.Error("released as if none were in flight: an attempt that lands late would hold " +
				"the lock for a TTL")
		}
		return storetest.Release(ctx, b.Backend, c)
	}
	cfg := locker.Config{TTL: 30 * time.Second, StoreTimeout: 5 * time.Second}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		start := time.Now()
		_, err := l.Lock(t.Context(), "k")
		wantErr(t, err, locker.ErrNotAcquired, errSilence)
		if errors.Is(err, backend.ErrHeld) {
			t.Error("one's own lock was reported as taken")
		}
		if d := time.Since(start); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("gave up after %v of silence, want StoreTimeout, 5s", d)
		}
		wantHeld(t, b, "k", false)
		_, err = l.TryLock(t.Context(), "k")
		wantErr(t, err, locker.ErrNotAcquired, errSilence)
		wantHeld(t, b, "k", false)
	})
}

// A held lock is an answer: StoreTimeout does not end a wait for it.
func TestStoreTimeoutIsAboutSilenceOnly(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{StoreTimeout: time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			time.AfterFunc(time.Hour, func() { _ = g.Unlock() })
			b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
				if b.acquires.Load()%2 == 0 { // never silent for a second on end
					return backend.Grant{}, backend.ErrUnavailable
				}
				return b.Backend.TryAcquire(ctx, c)
			}
			defer mustLock(t, l, "k").Unlock()
		})
}

// Who has waited for long for a lock that is held is not yet out of time when the store gives the
// next attempt no answer: the silence counts from when it was asked.
//
// covers: A7
func TestSilenceCountsFromTheQuestion(t *testing.T) {
	b := hook()
	caps := b.Capabilities()
	caps.Watch, caps.Queue = false, false // so it is asked again and again
	b.caps = &caps
	var silent atomic.Bool
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		if silent.Load() {
			return backend.Grant{}, errSilence
		}
		return b.Backend.TryAcquire(ctx, c)
	}
	synctest.Test(t, func(t *testing.T) {
		l := start(t, b, locker.Config{TTL: time.Minute, StoreTimeout: 5 * time.Second})
		other := start(t, b.Backend, locker.Config{TTL: time.Hour})
		held := mustLock(t, other, "k")
		time.AfterFunc(time.Minute, func() {
			silent.Store(true)
			if err := held.Unlock(); err != nil {
				t.Error(err)
			}
			time.Sleep(3 * time.Second)
			silent.Store(false)
		})
		if err := mustLock(t, l, "k").Unlock(); err != nil {
			t.Error(err)
		}
		_, _ = l.Close(), other.Close()
	})
}

// covers: A7, A8
func TestGrantThatComesTooLateIsAskedForAgain(t *testing.T) {
	b := hook()
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		g, err := b.Backend.TryAcquire(ctx, c)
		if b.acquires.Load() == 1 {
			time.Sleep(9 * time.Second)
		}
		return g, err
	}
	bubble(t, b, locker.Config{TTL: 10 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			defer g.Unlock()
			if left := time.Until(g.Until()); left < 9*time.Second {
				t.Errorf("only %v left on a fresh guard", left)
			}
			b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
				defer time.Sleep(9 * time.Second) // always
				return b.Backend.TryAcquire(ctx, c)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, err := l.Lock(ctx, "other")
			wantErr(t, err, locker.ErrNotAcquired)
			if errors.Is(err, context.DeadlineExceeded) {
				t.Error("it asks for ever, as the store answers others")
			}
			if !strings.Contains(err.Error(), "half the TTL") {
				t.Errorf("error does not say what is wrong: %v", err)
			}
			// The attempt that is under way, which heeds no ctx, and the withdrawal.
			time.Sleep(10 * time.Second)
			wantHeld(t, b, "other", false)
		})
}

// covers: A5, C5, W7, W8
func TestCancelledWaitLeavesNothing(t *testing.T) {
	b := plain()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		why := errors.New("user went away")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		start := time.Now()
		_, err := l.Lock(ctx, "k")
		wantErr(t, err, locker.ErrNotAcquired, context.Canceled, why, backend.ErrHeld)
		if d := time.Since(start); d != time.Second {
			t.Errorf("returned %v after the call, want with the cancellation at 1s", d)
		}
		if b.releases.Load() != 0 {
			t.Error("a claim that was definitely refused needs no release")
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		wantHeld(t, b, "k", false)
	})
}

// The grant and the cancellation come together: the grant is put back.
// covers: W7, A5
func TestGrantThatRacedWithCancelIsPutBack(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		ctx, cancel := context.WithCancel(t.Context())
		b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
			defer cancel()
			return b.Backend.TryAcquire(ctx, c)
		}
		_, err := l.Lock(ctx, "k")
		wantErr(t, err, locker.ErrNotAcquired, context.Canceled)
		wantHeld(t, b, "k", false)
		b.acquire = nil
		_, err = l.Lock(ctx, "k")
		wantErr(t, err, locker.ErrNotAcquired, context.Canceled)
		if n := b.acquires.Load(); n != 1 {
			t.Errorf("%d attempts; a call with a dead ctx sends none", n)
		}
	})
}

// A cancelled Lock does not wait for a silent store to be cleaned up; Close does.
func TestWithdrawGoesOnBehindTheCaller(t *testing.T) {
	b := hook()
	var back atomic.Bool
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		_, _ = b.Backend.TryAcquire(ctx, c)
		<-ctx.Done()
		return backend.Grant{}, ctx.Err()
	}
	b.release = func(ctx context.Context, c backend.Claim) error {
		if !back.Load() {
			return errSilence
		}
		return storetest.Release(ctx, b.Backend, c)
	}
	bubble(t, b, locker.Config{TTL: 30 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			_, err := l.Lock(ctx, "k")
			wantErr(t, err, context.DeadlineExceeded)
			if d := time.Since(start); d > time.Second+100*time.Millisecond {
				t.Errorf("returned after %v, want the grace of 100ms after 1s at most", d)
			}
			back.Store(true)
			time.Sleep(time.Second)
			wantHeld(t, b, "k", false)
		})
}

// A hold that was granted to a repeated attempt is released with a tombstone: the first attempt may
// yet land.
// covers: A4, X10
func TestReleaseAfterAnUnansweredAttemptLeavesATombstone(t *testing.T) {
	b := hook()
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		if b.acquires.Load() == 1 {
			return backend.Grant{}, errSilence // in flight, and executed after the release
		}
		return b.Backend.TryAcquire(ctx, c)
	}
	var released backend.Claim
	b.release = func(ctx context.Context, c backend.Claim) error {
		released = c
		return storetest.Release(ctx, b.Backend, c)
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		if err := mustLock(t, l, "k").Unlock(); err != nil {
			t.Error(err)
		}
		if _, err := b.Backend.TryAcquire(t.Context(), released); !errors.Is(err, backend.ErrLost) {
			t.Errorf("the attempt that landed after the release = %v, want ErrLost", err)
		}
		wantHeld(t, b, "k", false)
		if err := mustLock(t, l, "other").Unlock(); err != nil {
			t.Error(err)
		}
		if !released.NoneInFlight {
			t.Error("a claim whose every attempt was answered left a tombstone")
		}
	})
}
