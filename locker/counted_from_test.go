package locker_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// wantCounted fails unless the lease of g, of 30s, counts from sent. As no renewal is answered, it
// has to be lost before it ends in the store, whatever came between.
func wantCounted(t *testing.T, g *locker.Guard[struct{}], token uint64, sent time.Time) {
	t.Helper()
	if got := g.Hold().Token; got != token {
		t.Errorf("token %d, want that of the hand-over, %d", got, token)
	}
	if good, want := g.Until().Sub(sent), 30*time.Second-303*time.Millisecond; good != want {
		t.Errorf("good until %v after what was answered last had been sent, want %v", good, want)
	}
	<-g.Lost()
	if lost := time.Since(sent); lost >= 30*time.Second {
		t.Errorf("lost after %v, when the store had long let in the next", lost)
	}
	wantErr(t, g.Unlock(), locker.ErrLost)
}

// quietFallback is fallback without a log.
func quietFallback() locker.Config {
	cfg := fallback
	cfg.Logger = slog.New(slog.DiscardHandler)
	return cfg
}

// The attempt that takes the place in the queue is executed at once, and its answer is on its way
// for long. The key may be handed over from then on, so the lease counts from before the attempt
// was sent.
//
// covers: A6, W12
func TestHandOverIsCountedFromBeforeASlowAttempt(t *testing.T) {
	for name, after := range map[string]time.Duration{
		"while the answer is on its way": time.Second,
		"after it":                       5 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			b := queued(after, granted(6, 30*time.Second))
			refuse := b.acquire
			var sent time.Time // when the last attempt was
			b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
				sent = time.Now()
				if b.acquires.Load() == 2 { // the one after subscribing
					waiting.Pause(ctx, 3*time.Second)
				}
				return refuse(ctx, c)
			}
			b.renew = silent
			bubble(t, b, quietFallback(), func(t *testing.T, l *locker.Client[struct{}]) {
				g := mustLock(t, l, "k")
				if asked := b.acquires.Load(); asked != 2 {
					t.Fatalf("%d attempts, want 2 and the hand-over", asked)
				}
				wantCounted(t, g, 6, sent)
			})
		})
	}
}

// A heartbeat that is not answered may not have been executed: what is handed over after it counts
// from what was answered before it, an attempt or a heartbeat.
//
// covers: A6, W12
func TestHandOverIsNotCountedFromAnUnansweredHeartbeat(t *testing.T) {
	for name, test := range map[string]struct {
		answered int64 // how many heartbeats are, before the first that is not
		after    time.Duration
		token    uint64
		err      error
	}{
		"no answer, after an attempt":    {0, 13 * time.Second, 6, errSilence},
		"no answer, after a heartbeat":   {1, 25 * time.Second, 8, errSilence},
		"unavailable, after an attempt":  {0, 13 * time.Second, 6, backend.ErrUnavailable},
		"unavailable, after a heartbeat": {1, 25 * time.Second, 8, backend.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			b := &told{beating: beating{hooked: queued(test.after,
				granted(test.token, 30*time.Second))}}
			var sent time.Time // when the last heartbeat was that was answered
			b.told = func(context.Context, []backend.Claim) ([]error, error) {
				if b.beats.Load() > test.answered {
					return nil, test.err
				}
				sent = time.Now()
				return []error{&backend.HeldError{Position: 1, Token: 7}}, nil
			}
			b.renew = silent
			bubble(t, b, quietFallback(), func(t *testing.T, l *locker.Client[struct{}]) {
				g, began, asked := handOff(t, l, b.hooked, test.after)
				if beats := b.beats.Load(); asked != 2 || beats <= test.answered {
					t.Fatalf("%d attempts and %d heartbeats, of which %d were answered", asked,
						beats, test.answered)
				}
				if test.answered == 0 {
					sent = began // of the attempt
				}
				wantCounted(t, g, test.token, sent)
			})
		})
	}
}

// A watched is a context that calls meet, once, when it is asked for its Done: that is what makes a
// child of it do before it is one.
type watched struct {
	context.Context
	meet atomic.Pointer[func()]
}

func (w *watched) Done() <-chan struct{} {
	if meet := w.meet.Swap(nil); meet != nil {
		(*meet)()
	}
	return w.Context.Done()
}

// The hold ends while somebody looks at its context for the first time, after it was found good and
// before there is a context to end: what the look brings has ended, too, and says why.
//
// covers: B1, G5
func TestContextThatIsMadeWhileItsHoldEnds(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(g *locker.Guard[struct{}])
		want error
	}{
		"lost":     {func(g *locker.Guard[struct{}]) { <-g.Lost() }, locker.ErrLost},
		"unlocked": {func(g *locker.Guard[struct{}]) { _ = g.Unlock() }, locker.ErrUnlocked},
	} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			b.renew = silent
			bubble(t, b, quietFallback(), func(t *testing.T, l *locker.Client[struct{}]) {
				parent := &watched{Context: t.Context()}
				g, err := l.Lock(parent, "k")
				if err != nil {
					t.Fatal(err)
				}
				met := false
				meet := func() { test.end(g); met = true }
				parent.meet.Store(&meet)
				first := g.Context().Done()
				if !met {
					t.Fatal("the hold did not end while its context was made")
				}
				select {
				case <-first:
				default:
					t.Error("the hold is over, and the context that was looked at goes on")
				}
				ctx, stop := context.WithCancel(g.Context())
				defer stop()
				if !isDone(ctx) || g.Context().Err() == nil {
					t.Error("work that begins under it now goes on")
				}
				wantErr(t, context.Cause(g.Context()), test.want)
				_ = g.Unlock()
			})
		})
	}
}

// A release was executed, and its reply lost. The next meets a store that is away, which refuses;
// then the hold is found gone. It was ended by the first: that is no loss, and the value was saved.
//
// covers: C4, A2
func TestReleaseWithoutAnAnswerIsRememberedOverARefusal(t *testing.T) {
	b, _, release := switchable()
	var n atomic.Int64
	lose := func(ctx context.Context, c backend.Claim) error {
		switch n.Add(1) {
		case 1:
			if err := storetest.Release(ctx, b.Backend, c); err != nil {
				t.Errorf("the first release: %v", err)
			}
			return errSilence
		case 2:
			return backend.ErrUnavailable
		}
		return storetest.Release(ctx, b.Backend, c)
	}
	t.Run("lock", func(t *testing.T) {
		bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			release(lose)
			if err := g.Unlock(); err != nil || n.Load() != 3 {
				t.Errorf("Unlock after %d releases = %v, want nil: the first ended the hold",
					n.Load(), err)
			}
			wantHeld(t, b, "k", false)
		})
	})
	n.Store(0)
	release(nil)
	t.Run("store", func(t *testing.T) {
		stock(t, b, locker.Config{}, func(t *testing.T, s *locker.Store[int]) {
			release(lose)
			if err := s.Update(t.Context(), "value", add(1)); err != nil || n.Load() != 3 {
				t.Errorf("Update after %d releases = %v, want nil: the first saved the value",
					n.Load(), err)
			}
			wantStock(t, s, "value", 1)
		})
	})
}
