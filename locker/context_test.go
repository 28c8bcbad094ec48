package locker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/locker"
)

var errWhy = errors.New("shutting down")

type word struct{}

// What a guard's context says does not depend on when somebody first looks at it.
// covers: B10
func TestContextThatIsLookedAtLate(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		for name, try := range map[string]struct {
			end  func(g *locker.Guard[struct{}], cancel context.CancelCauseFunc)
			want error
		}{
			"unlocked": {func(g *locker.Guard[struct{}], _ context.CancelCauseFunc) {
				_ = g.Unlock()
			}, locker.ErrUnlocked},
			"unlocked before the parent": {func(g *locker.Guard[struct{}],
				c context.CancelCauseFunc,
			) {
				_ = g.Unlock()
				c(errWhy)
			}, locker.ErrUnlocked},
			"unlocked after the parent": {func(g *locker.Guard[struct{}],
				c context.CancelCauseFunc,
			) {
				c(errWhy)
				_ = g.Unlock()
			}, errWhy},
			"parent": {func(_ *locker.Guard[struct{}], c context.CancelCauseFunc) {
				c(errWhy)
			}, errWhy},
		} {
			for look, done := range map[string]func(ctx context.Context) bool{
				"cause": func(ctx context.Context) bool { return context.Cause(ctx) != nil },
				"err":   func(ctx context.Context) bool { return ctx.Err() != nil },
				"done":  isDone,
				"derived": func(ctx context.Context) bool {
					ctx, end := context.WithCancel(ctx)
					defer end()
					return isDone(ctx)
				},
			} {
				parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), word{},
					"hello"))
				g, err := l.Lock(parent, "k")
				if err != nil {
					t.Fatal(err)
				}
				ctx := g.Context()
				if ctx.Value(word{}) != "hello" || ctx.Err() != nil || context.Cause(ctx) != nil {
					t.Errorf("%s, %s: a live hold's context: %v, %v", name, look, ctx.Err(),
						context.Cause(ctx))
				}
				try.end(g, cancel)
				if !done(ctx) || !errors.Is(context.Cause(ctx), try.want) ||
					!errors.Is(ctx.Err(), context.Canceled) {
					t.Errorf("%s, %s: %v, cause %v, want %v", name, look, ctx.Err(),
						context.Cause(ctx), try.want)
				}
				if ctx.Value(word{}) != "hello" {
					t.Errorf("%s, %s: lost its values", name, look)
				}
				cancel(nil)
				_ = g.Unlock()
			}
		}
	})
}

// The work of a hold whose ctx has a limit that was meant for the wait hears why it is cut off, in
// one sentence.
func TestContextWhoseCallerIsLate(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		parent, cancel := context.WithTimeout(context.WithValue(t.Context(), word{}, "hello"),
			time.Minute)
		defer cancel()
		g, err := locker.All(parent, l, []string{"a", "b", "c"}) // each under the one before
		if err != nil {
			t.Fatal(err)
		}
		early, end := context.WithCancel(g.Context())
		defer end()
		<-parent.Done()
		<-early.Done()
		late, end := context.WithCancel(g.Context())
		defer end()
		for name, ctx := range map[string]context.Context{
			"the hold's":      g.Context(),
			"derived from it": late,
		} {
			says := context.Cause(ctx).Error()
			wantErr(t, context.Cause(ctx), context.DeadlineExceeded)
			if strings.Count(says, "still held") != 1 || !strings.Contains(says, "WaitLimit") ||
				ctx.Value(word{}) != "hello" {
				t.Errorf("%s: %q", name, says)
			}
		}
		for _, ctx := range []context.Context{g.Context(), early, late} {
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("it ended with %v", ctx.Err())
			}
		}
		_, err = l.Lock(g.Context(), "d")
		if wantErr(t, err, locker.ErrNotAcquired,
			context.DeadlineExceeded); !strings.Contains(err.Error(), "WaitLimit") {
			t.Errorf("Lock under it = %v", err)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		if cause := context.Cause(g.Context()); !errors.Is(cause, context.DeadlineExceeded) ||
			strings.Contains(cause.Error(), "still held") {
			t.Errorf("after Unlock: %v", cause)
		}
		caller, leave := context.WithCancelCause(t.Context())
		one, err := l.Lock(caller, "a")
		if err != nil {
			t.Fatal(err)
		}
		leave(errWhy)
		//nolint:errorlint // that, and no more
		if cause := context.Cause(one.Context()); cause != errWhy {
			t.Errorf("of a caller that left: %v", cause)
		}
		_ = one.Unlock()
	})
}

func isDone(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// A context that was looked at early ends with the hold, and all that were derived from it do.
func TestContextThatIsLookedAtEarly(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		parent, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		g, err := l.Lock(parent, "k")
		if err != nil {
			t.Fatal(err)
		}
		want, _ := parent.Deadline()
		if d, ok := g.Context().Deadline(); !ok || !d.Equal(want) {
			t.Errorf("deadline %v, want the parent's", d)
		}
		derived, end := context.WithCancel(g.Context())
		defer end()
		time.AfterFunc(time.Second, func() { _ = g.Unlock() })
		<-derived.Done()
		wantErr(t, context.Cause(derived), locker.ErrUnlocked)
	})
}

// Everybody looks while the hold ends: all see the same end.
func TestContextThatManyLookAt(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		for range 200 {
			g := mustLock(t, l, "k")
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					<-g.Context().Done()
					wantErr(t, context.Cause(g.Context()), locker.ErrUnlocked)
				})
			}
			all.Go(func() { _ = g.Unlock() })
			all.Wait()
		}
	})
}

// Whoever works under a hold finds it in the ctx, with a Client of whatever type; of several the
// innermost, and also when it is over.
func TestHoldFrom(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		want := func(ctx context.Context, key string, token uint64) locker.Hold {
			t.Helper()
			h, ok := locker.HoldFrom(ctx)
			if !ok || h.Key != key || h.Token == 0 || token != 0 && h.Token != token {
				t.Errorf("HoldFrom = %+v, %v, want %q with token %d", h, ok, key, token)
			}
			return h
		}
		for _, ctx := range []context.Context{
			t.Context(), (*locker.Guard[int])(nil).Context(),
			(&locker.Guards[int]{}).Context(),
		} {
			if h, ok := locker.HoldFrom(ctx); ok || h != (locker.Hold{}) {
				t.Errorf("HoldFrom without a hold = %+v", h)
			}
		}
		all, err := locker.All(t.Context(), l, []string{"b", "a"})
		if err != nil {
			t.Fatal(err)
		}
		want(all.Context(), "b", all.Guard("b").Hold().Token)
		_ = all.Unlock()

		outer := mustLock(t, l, "outer")
		tokens := map[uint64]bool{}
		fn := func(ctx context.Context, _ struct{}) error {
			ctx, cancel := context.WithCancel(context.WithValue(ctx, word{}, "hello"))
			defer cancel()
			tokens[want(ctx, "inner", 0).Token] = true
			return nil
		}
		for name, err := range map[string]error{
			"Do":   locker.Do(outer.Context(), l, "inner", fn),
			"Lead": locker.Lead(outer.Context(), l, "inner", fn),
			"Once": not(locker.Once(outer.Context(), l, "inner", time.Hour, fn)),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(tokens) != 3 {
			t.Errorf("three holds have %d tokens", len(tokens))
		}
		ctx := outer.Context()
		want(ctx, "outer", outer.Hold().Token)
		_ = outer.Unlock()
		want(ctx, "outer", outer.Hold().Token)
		want(context.WithoutCancel(ctx), "outer", outer.Hold().Token)
		wantErr(t, outer.Check(ctx), locker.ErrUnlocked)
		wantErr(t, context.Cause(ctx), locker.ErrUnlocked)
	})
}
