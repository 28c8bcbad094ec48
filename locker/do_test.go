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

// covers: C6
func TestDoUnlocksOnPanic(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v, want the panic of fn", r)
			}
			wantHeld(t, b, "k", false)
		}()
		_ = locker.Do(t.Context(), l, "k", func(context.Context, struct{}) error { panic("boom") })
	})
}

func TestDoJoinsErrors(t *testing.T) {
	b := hook()
	mine := errors.New("mine")
	bubble(t, b, locker.Config{TTL: 10 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			err := locker.Do(t.Context(), l, "k", func(context.Context, struct{}) error {
				return mine
			})
			if !errors.Is(err, mine) || errors.Is(err, locker.ErrLost) {
				t.Error(err)
			}
			b.renew = func(context.Context, backend.Claim) error { return backend.ErrLost }
			err = locker.Do(t.Context(), l, "k", func(ctx context.Context, _ struct{}) error {
				<-ctx.Done()
				wantErr(t, context.Cause(ctx), locker.ErrLost)
				return mine
			})
			wantErr(t, err, mine, locker.ErrLost)
		})
}

func TestDoWithoutLockDoesNothing(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		defer g.Unlock()
		err := locker.Do(t.Context(), l, "k", func(context.Context, struct{}) error {
			t.Error("fn was called without the lock")
			return nil
		}, locker.WaitLimit(time.Second))
		wantErr(t, err, locker.ErrNotAcquired)
	})
}

// covers: G8
func TestBinderMakesOneValuePerHold(t *testing.T) {
	b := hook()
	type repo struct {
		token uint64
		ctx   context.Context
	}
	bind := func(ctx context.Context, h locker.Hold) (*repo, error) {
		return &repo{h.Token, ctx}, nil
	}
	synctest.Test(t, func(t *testing.T) {
		l, err := locker.New(b, bind, locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		v, err := g.Value()
		if err != nil || v.token != g.Hold().Token || v.token == 0 {
			t.Errorf("value %+v, %v", v, err)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		wantErr(t, context.Cause(v.ctx), locker.ErrUnlocked) // the value can see its hold end
		if err := l.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestFailingBinderReleases(t *testing.T) {
	b := hook()
	mine := errors.New("no connection")
	broken := func(context.Context, locker.Hold) (int, error) { return 0, mine }
	panics := func(context.Context, locker.Hold) (int, error) { panic("boom") }
	synctest.Test(t, func(t *testing.T) {
		for _, bind := range []locker.Binder[int]{broken, panics} {
			l, err := locker.New(b, bind, locker.Config{})
			if err != nil {
				t.Fatal(err)
			}
			func() {
				defer func() { _ = recover() }()
				g, err := l.Lock(t.Context(), "k")
				wantErr(t, err, mine, locker.ErrNotAcquired)
				if g != nil {
					t.Error("a guard beside an error")
				}
			}()
			wantHeld(t, b, "k", false)
			if err := l.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
