package locker_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// Why somebody holds is seen by whoever is refused, by whoever looks, and by the holder, in every
// mode.
func TestNote(t *testing.T) {
	const note = "nightly \"backup\"\n汉字"
	for name, opts := range map[string][]locker.Option{
		"exclusive": nil,
		"shared":    {locker.Shared()},
		"permit":    {locker.Permit(1)},
		"reentrant": {locker.Reentrant("me")},
		"once":      {locker.OncePer(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, hook(), locker.Config{Service: "shop"},
				func(t *testing.T, l *locker.Client[struct{}]) {
					g, err := l.TryLock(t.Context(), "k", append(opts, locker.Note(note))...)
					if err != nil {
						t.Fatal(err)
					}
					if h, _ := locker.HoldFrom(g.Context()); h.Note != note ||
						g.Hold().Note != note {
						t.Errorf("Hold.Note = %q, and %q", g.Hold().Note, h.Note)
					}
					other := []locker.Option(nil)
					if name == "permit" {
						other = opts
					}
					_, err = l.TryLock(t.Context(), "k", other...)
					var held *backend.HeldError
					if !errors.As(err, &held) || held.Holder.Note != note ||
						!strings.Contains(err.Error(), `: "nightly \"backup\"\n汉字")`) {
						t.Errorf("whoever is refused is told %v", err)
					}
					state, err := l.Inspect(t.Context(), "k")
					if err != nil || len(state.Holders) != 1 || state.Holders[0].Meta.Note != note {
						t.Errorf("Inspect = %+v, %v", state, err)
					}
					if err := g.Unlock(); err != nil {
						t.Error(err)
					}
				})
		})
	}
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		gs, err := locker.All(t.Context(), l, []string{"a", "b"}, locker.Note(note))
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range gs.Keys() {
			_, err := l.TryLock(t.Context(), key)
			var held *backend.HeldError
			if g := gs.Guard(key); g.Hold().Note != note || !errors.As(err, &held) ||
				held.Holder.Note != note {
				t.Errorf("All: %q: %v", gs.Guard(key).Hold().Note, err)
			}
		}
		if err := gs.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A hold that is handed to another process is still held for the same reason.
func TestAdoptedNote(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		ticket, err := mustLock(t, l, "k", locker.Reentrant(backend.NewOwner()),
			locker.Note("import")).Detach()
		if err != nil {
			t.Fatal(err)
		}
		g, err := l.Adopt(t.Context(), ticket)
		if err != nil {
			t.Fatal(err)
		}
		state, err := l.Inspect(t.Context(), "k")
		if err != nil || len(state.Holders) != 1 || state.Holders[0].Meta.Note != "import" ||
			g.Hold().Note != "import" {
			t.Errorf("%q holds, and the store shows %+v, %v", g.Hold().Note, state, err)
		}
		_ = g.Unlock()
	})
}

// A lease goes to whoever gave the same note, and nobody holds under another's.
func TestOtherNotesLineUpApart(t *testing.T) {
	for name, test := range map[string]struct {
		second string
		grants int
	}{"the same": {"import", 1}, "another": {"export", 2}, "none": {"", 2}} {
		t.Run(name, func(t *testing.T) {
			b := count()
			bubble(t, b, locker.Config{Wait: waiting.Config{PassTime: time.Hour}},
				func(t *testing.T, l *locker.Client[struct{}]) {
					g := mustLock(t, l, "k", locker.Note("import"))
					time.AfterFunc(time.Second, func() { _ = g.Unlock() })
					other := mustLock(t, l, "k", locker.Note(test.second))
					state, err := b.Inspect(t.Context(), "k")
					if err != nil || len(state.Holders) != 1 ||
						state.Holders[0].Meta.Note != test.second ||
						other.Hold().Note != test.second {
						t.Errorf("%q holds, and the store shows %+v, %v", other.Hold().Note, state,
							err)
					}
					if grants, _ := b.seen(); grants != test.grants {
						t.Errorf("%d grants, want %d", grants, test.grants)
					}
					_ = other.Unlock()
				})
		})
	}
}

// onSuccess runs a job that counts only if it succeeds.
func onSuccess(t *testing.T, l *locker.Client[struct{}], fn func() error) (ran bool, err error) {
	return locker.Once(t.Context(), l, "job", time.Hour, func(context.Context, struct{}) error {
		return fn()
	}, locker.OnSuccess())
}

// A run that failed, panicked or was ended does not count with OnSuccess, and one that succeeded
// does.
func TestOnSuccess(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		broken := errors.New("no space")
		for _, end := range []func() error{
			func() error { return broken },
			func() error { panic(broken) },
			func() error { runtime.Goexit(); return nil },
			func() error { return errors.Join(broken, locker.ErrLost) },
		} {
			var job sync.WaitGroup
			ran := false
			job.Go(func() {
				defer func() { _ = recover() }()
				_, _ = onSuccess(t, l, func() error { ran = true; return end() })
			})
			job.Wait()
			if !ran {
				t.Fatal("a run that came to nothing counts")
			}
		}
		if ran, err := onSuccess(t, l, func() error {
			return broken
		}); !ran || !errors.Is(err, broken) {
			t.Errorf("Once = %v, %v", ran, err)
		}
		if ran, err := onSuccess(t, l, func() error { return nil }); !ran || err != nil {
			t.Errorf("Once = %v, %v", ran, err)
		}
		if ran, err := onSuccess(t, l, func() error { return nil }); ran || err != nil {
			t.Errorf("behind a run that succeeded Once = %v, %v", ran, err)
		}
		if once(t, l, time.Hour) {
			t.Error("a run with OnSuccess does not count for those without")
		}
	})
}

// Who waits while another runs the job does it if that failed, and not if it succeeded.
func TestOnSuccessBehindAnother(t *testing.T) {
	for _, fails := range []bool{true, false} {
		bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
			var runs []string
			run := func(who string, err error) {
				ran, got := onSuccess(t, l, func() error {
					runs = append(runs, who) // under the lock
					time.Sleep(time.Minute)
					return err
				})
				if ran && !errors.Is(got, err) || !ran && got != nil {
					t.Errorf("%s: Once = %v, %v", who, ran, got)
				}
			}
			var all sync.WaitGroup
			var first error
			if fails {
				first = errSilence
			}
			all.Go(func() { run("first", first) })
			time.Sleep(time.Second)
			all.Go(func() { run("second", nil) })
			all.Wait()
			want := 1
			if fails {
				want = 2
			}
			if len(runs) != want {
				t.Errorf("the first failed: %v, and it was run by %q", fails, runs)
			}
		})
	}
}

// OnSuccess is refused by name where nobody sees whether the job fails, and a note that is none,
// before the store is asked.
func TestNoteAndOnSuccessRefuse(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		var invalid *backend.InvalidError
		refused := func(what, field string, err error) {
			t.Helper()
			if !errors.Is(err, locker.ErrNotAcquired) || !errors.As(err, &invalid) ||
				invalid.Field != field || b.acquires.Load() > 0 {
				t.Errorf("%s: %v, after %d requests", what, err, b.acquires.Load())
			}
		}
		try := func(opts ...locker.Option) error {
			_, err := l.TryLock(t.Context(), "k", opts...)
			return err
		}
		refused("TryLock", "OnSuccess", try(locker.OnSuccess()))
		refused("OncePer", "OnSuccess", try(locker.OnSuccess(), locker.OncePer(time.Hour)))
		_, err := l.Lock(t.Context(), "k", locker.OnSuccess())
		refused("Lock", "OnSuccess", err)
		_, err = locker.All(t.Context(), l, []string{"k"}, locker.OnSuccess())
		refused("All", "OnSuccess", err)
		do := func(context.Context, struct{}) error { t.Error("it runs"); return nil }
		refused("Do", "OnSuccess", locker.Do(t.Context(), l, "k", do, locker.OnSuccess()))
		refused("long", "Note", try(locker.Note(strings.Repeat("x", backend.MaxNote+1))))
		refused("no text", "Note", try(locker.Note("\xff")))
		if _, err = locker.Once(t.Context(), l, "k", time.Hour, do,
			locker.Note(strings.Repeat("x", backend.MaxNote+1))); err == nil {
			t.Error("Once takes any note")
		}
		refused("Once", "Note", err)
		g, err := l.TryLock(t.Context(), "k", locker.Note(strings.Repeat("x", backend.MaxNote)))
		if err != nil {
			t.Fatal(err)
		}
		_ = g.Unlock()
	})
}
