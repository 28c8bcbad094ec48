package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// covers: G1
func TestCloseEndsWaitsAndAwaitsGuards(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		waited := make(chan error, 1)
		go func() {
			_, err := l.Lock(context.Background(), "k")
			waited <- err
		}()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- l.Shutdown(context.Background()) }()
		err := <-waited
		wantErr(t, err, locker.ErrNotAcquired, locker.ErrClosed)
		time.Sleep(time.Hour)
		select {
		case err := <-closed:
			t.Fatal(err, "Close returned while a guard was held")
		default:
		}
		if _, err := g.Value(); err != nil {
			t.Errorf("Close ended a hold that it should wait for: %v", err)
		}
		_, err = l.Lock(context.Background(), "other")
		wantErr(t, err, locker.ErrClosed)
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

func TestCloseOutOfTimeCutsGuardsOff(t *testing.T) {
	b := hook()
	b.renew = func(ctx context.Context, _ backend.Claim) error { <-ctx.Done(); return ctx.Err() }
	b.release = func(ctx context.Context, _ backend.Claim) error { <-ctx.Done(); return ctx.Err() }
	synctest.Test(t, func(t *testing.T) {
		l, err := locker.New(b, locker.Bare, locker.Config{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		g := mustLock(t, l, "k")
		time.Sleep(25 * time.Second) // a renewal is under way
		unlocking := mustLock(t, l, "unlocking")
		go unlocking.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = l.Shutdown(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		wantErr(t, context.Cause(g.Context()), locker.ErrLost, locker.ErrClosed)
		if err := g.Unlock(); err == nil { // after Close: it asks the store, which does not answer
			t.Error("a release that was not confirmed is none")
		}
		synctest.Wait()
		if err := l.Shutdown(context.Background()); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

// A claim that is being withdrawn is part of what Close waits for.
func TestCloseWaitsForCleanUp(t *testing.T) {
	b := hook()
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		_, _ = b.Backend.TryAcquire(ctx, c)
		return backend.Grant{}, errSilence
	}
	b.release = func(ctx context.Context, c backend.Claim) error {
		time.Sleep(5 * time.Second)
		return b.Backend.Release(ctx, c)
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		if _, err := l.TryLock(t.Context(), "k"); !errors.Is(err, errSilence) {
			t.Fatal(err)
		}
		if err := l.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		wantHeld(t, b, "k", false)
	})
}
