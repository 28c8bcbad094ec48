package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
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

// A reader waits, or its request has no answer yet: Close ends it at once, with its own error.
//
// covers: G1
func TestCloseEndsReaders(t *testing.T) {
	for name, during := range map[string]bool{"asleep": false, "in a request": true} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
				defer holder(t, b)()
				if during {
					b.acquire = func(ctx context.Context, _ backend.Claim) (backend.Grant, error) {
						<-ctx.Done()
						return backend.Grant{}, ctx.Err()
					}
				}
				waited := inBackground(context.Background(), l, locker.Shared())
				began := time.Now()
				if err := l.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
				err := <-waited
				wantErr(t, err, locker.ErrNotAcquired, locker.ErrClosed)
				if took := time.Since(began); took > time.Second {
					t.Errorf("it ended %v after the Close", took)
				}
			})
		})
	}
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

// Close finds every hold, whether its lease is its own or a cohort's, and also one that was handed
// on. It ends their contexts at once, and those that are still not unlocked are lost and named when
// its time is over.
//
// covers: G1
func TestCloseFindsEveryHold(t *testing.T) {
	type client = locker.Client[struct{}]
	type guard = *locker.Guard[struct{}]
	with := func(opts ...locker.Option) func(t *testing.T, l *client) (guard, error) {
		return func(t *testing.T, l *client) (guard, error) {
			return l.Lock(t.Context(), "k", opts...)
		}
	}
	for name, lock := range map[string]func(t *testing.T, l *client) (guard, error){
		"lock": with(),
		"trylock": func(t *testing.T, l *client) (guard, error) {
			return l.TryLock(t.Context(), "k")
		},
		"shared":    with(locker.Shared()),
		"permit":    with(locker.Permit(2)),
		"reentrant": with(locker.Reentrant("o")),
		"adopted": func(t *testing.T, l *client) (guard, error) {
			ticket, err := mustLock(t, l, "k", locker.Reentrant("o")).Detach()
			if err != nil {
				return nil, err
			}
			return l.Adopt(t.Context(), ticket)
		},
		"handed on": func(t *testing.T, l *client) (g guard, err error) {
			first, next := mustLock(t, l, "k"), make(chan struct{})
			go func() {
				defer close(next)
				g, err = l.Lock(t.Context(), "k")
			}()
			synctest.Wait()
			_ = first.Unlock()
			<-next
			return g, err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := hook()
			l, err := locker.New(b, locker.Bare, locker.Config{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			g, err := lock(t, l)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			closed := make(chan error, 1)
			go func() { closed <- l.Close() }()
			synctest.Wait()
			if cause := context.Cause(g.Context()); !errors.Is(cause, locker.ErrClosed) ||
				errors.Is(cause, locker.ErrLost) {
				_ = g.Unlock() // else Close waits for a hold that it does not know
				t.Fatalf("%s: after Close began the context ended with %v, want ErrClosed", name,
					cause)
			}
			if err := <-closed; !errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), `not unlocked: "k"`) {
				t.Errorf("%s: Close out of time = %v, want one that names the guard", name, err)
			}
			renewed := b.renews.Load()
			time.Sleep(time.Hour)
			if n := b.renews.Load() - renewed; n > 0 {
				t.Errorf("%s: %d renewals after Close", name, n)
			}
			wantHeld(t, b, "k", false)
			if err := g.Unlock(); !errors.Is(err, locker.ErrClosed) {
				t.Errorf("%s: Unlock after Close = %v, want ErrClosed", name, err)
			}
		})
	}
}

// Close ends a hold, which is renewed until its Unlock. If it is lost before that, whoever looks at
// Lost hears of it, as another may hold the key by then.
//
// covers: G1
func TestLostBehindClose(t *testing.T) {
	b, renew, _ := switchable()
	bubble(t, b, locker.Config{TTL: 9 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			lost, closed := g.Lost(), make(chan error, 1)
			go func() { closed <- l.Close() }()
			synctest.Wait()
			wantErr(t, context.Cause(g.Context()), locker.ErrClosed)
			select {
			case <-lost:
				t.Error("Close alone loses nothing")
			default:
			}
			renew(func(context.Context, backend.Claim) error { return backend.ErrLost })
			time.Sleep(5 * time.Second) // a renewal is due
			select {
			case <-lost:
			default:
				t.Error("a loss behind Close is not told")
			}
			wantErr(t, g.Unlock(), locker.ErrLost)
			if err := <-closed; err != nil {
				t.Errorf("Close: %v", err)
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
		return storetest.Release(ctx, b.Backend, c)
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
