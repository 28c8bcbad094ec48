package locker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// A relayer is a hooked backend that relays.
type relayer struct {
	*hooked
	relays atomic.Int64
	relay  func(ctx context.Context, ended, next backend.Claim) (error, backend.Grant, error)
}

func (r *relayer) Relay(ctx context.Context, ended, next backend.Claim) (released error, g backend.Grant, err error) {
	r.relays.Add(1)
	if r.relay != nil {
		return r.relay(ctx, ended, next)
	}
	return backend.RelayOf(ctx, r.Backend, ended, next)
}

// Short holds of one process are given back and taken in one request each. Long ones are waited for in the store's line.
// covers: W5
func TestReleaseTakesQuestionAlong(t *testing.T) {
	for name, c := range map[string]struct {
		held           time.Duration
		relays, others int64
	}{
		"short": {500 * time.Microsecond, 3, 2}, // the first hold's, and its agent's, which has asked before
		"long":  {2 * time.Millisecond, 0, 5},
	} {
		b := &relayer{hooked: hook()}
		bubble(t, b, strict, func(t *testing.T, l *locker.Client[struct{}]) {
			inTurn(t, l, 4, c.held)
			if n := b.relays.Load(); n != c.relays {
				t.Errorf("%s: %d relays, want %d", name, n, c.relays)
			}
			if n := b.acquires.Load(); n != c.others {
				t.Errorf("%s: %d other questions, want %d", name, n, c.others)
			}
			wantHeld(t, b, "k", false)
		})
	}
}

// A question that goes with a release needs no subscription while it is this process alone that wants the key. Once a hold lasts, so
// that the question goes by itself and the answer is a place in line, there is one before it is sent: it is not sent twice.
// covers: W5
func TestAloneWithoutSubscription(t *testing.T) {
	b := &relayer{hooked: hook()}
	bubble(t, b, strict, func(t *testing.T, l *locker.Client[struct{}]) {
		first := mustLock(t, l, "k")
		var all sync.WaitGroup
		watches := make([]int64, 6)
		for i := range watches {
			all.Go(func() {
				g := mustLock(t, l, "k")
				hold := 500 * time.Microsecond
				if i == 4 {
					hold = 20 * time.Millisecond
				}
				time.Sleep(hold)
				watches[i] = b.watches.Load()
				if err := g.Unlock(); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		if err := first.Unlock(); err != nil {
			t.Error(err)
		}
		all.Wait()
		if want := []int64{2, 2, 2, 2, 3, 3}; !slices.Equal(watches, want) {
			t.Errorf("subscriptions by the end of each hold: %d, want %d", watches, want)
		}
		if asked := b.acquires.Load(); asked != 3 { // the first hold's, the agent's first, and behind the long hold
			t.Errorf("%d questions by themselves, want 3", asked)
		}
	})
}

// Another process has come meanwhile: the question that went with the release has got a place in line, and one more follows, behind one
// subscription.
func TestAloneNoMore(t *testing.T) {
	b := &relayer{hooked: hook()}
	bubble(t, b, strict, func(t *testing.T, l *locker.Client[struct{}]) {
		theirs := &relayer{hooked: &hooked{Backend: b.Backend}}
		other, err := locker.New(theirs, locker.Bare, strict)
		if err != nil {
			t.Fatal(err)
		}
		guards := make(chan *locker.Guard[struct{}])
		lock := func(l *locker.Client[struct{}]) {
			go func() { guards <- mustLock(t, l, "k") }()
			synctest.Wait()
		}
		g := mustLock(t, l, "k")
		for range 4 {
			lock(l)
		}
		for i := range 5 {
			if i == 3 { // the present hold was granted with a release, and its agent stands back again
				lock(other)
				b.watches.Store(0)
				b.acquires.Store(0)
			}
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
			g = <-guards
			synctest.Wait()
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		if watches, asked := b.watches.Load(), b.acquires.Load(); watches != 1 || asked != 1 {
			t.Errorf("%d subscriptions and %d questions, want one each", watches, asked)
		}
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A backend that turns out to relay nothing is asked in two requests, and not in one again.
func TestRelayUnsupported(t *testing.T) {
	b := &relayer{hooked: hook()}
	b.relay = func(ctx context.Context, ended, next backend.Claim) (error, backend.Grant, error) {
		return backend.RelayOf(ctx, b.hooked, ended, next) // which hides what is within
	}
	bubble(t, b, strict, func(t *testing.T, l *locker.Client[struct{}]) {
		inTurn(t, l, 4, 500*time.Microsecond)
		if n := b.relays.Load(); n != 1 {
			t.Errorf("%d relays, want one", n)
		}
		wantHeld(t, b, "k", false)
	})
}

// A relay whose answer is lost, before or after it was done, is two unknown answers: the release is repeated, and so is the question, by
// the verbs. Nobody holds twice, and nothing stays behind.
// covers: A1, A3, W7
func TestRelayUnanswered(t *testing.T) {
	for _, done := range []bool{false, true} {
		b := &relayer{hooked: hook()}
		b.relay = func(ctx context.Context, ended, next backend.Claim) (error, backend.Grant, error) {
			if !ended.Settled { // an attempt of it is under way, so it needs a tombstone
				t.Error("a hold that is not settled was relayed")
			}
			if done {
				_, _, _ = backend.RelayOf(ctx, b.Backend, ended, next)
			}
			return errSilence, backend.Grant{}, errSilence
		}
		bubble(t, b, strict, func(t *testing.T, l *locker.Client[struct{}]) {
			var inside atomic.Int32
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					g := mustLock(t, l, "k")
					if inside.Add(1) > 1 {
						t.Error("two inside")
					}
					time.Sleep(100 * time.Microsecond)
					inside.Add(-1)
					if err := g.Unlock(); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			synctest.Wait()
			if b.relays.Load() == 0 {
				t.Error("no relay")
			}
			wantHeld(t, b, "k", false)
			if state, err := b.Inspect(t.Context(), "k"); err != nil || len(state.Waiters) > 0 {
				t.Errorf("left behind: %+v, %v", state, err)
			}
		})
	}
}

// Whoever waited leaves while the relay is on its way: what it brings is given back.
// covers: W7, W8
func TestRelayForNobody(t *testing.T) {
	b := &relayer{hooked: hook()}
	b.relay = func(ctx context.Context, ended, next backend.Claim) (error, backend.Grant, error) {
		time.Sleep(time.Second)
		return backend.RelayOf(ctx, b.Backend, ended, next)
	}
	bubble(t, b, strict, func(t *testing.T, l *locker.Client[struct{}]) {
		first := mustLock(t, l, "k")
		next := make(chan *locker.Guard[struct{}])
		go func() { next <- mustLock(t, l, "k") }()
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		impatient := make(chan error)
		go func() {
			_, err := l.Lock(ctx, "k")
			impatient <- err
		}()
		synctest.Wait()
		if err := first.Unlock(); err != nil {
			t.Error(err)
		}
		second := <-next
		synctest.Wait() // its agent stands back for who comes next
		unlocked := make(chan error)
		go func() { unlocked <- second.Unlock() }()
		synctest.Wait()
		cancel(nil)
		if err := <-impatient; !errors.Is(err, context.Canceled) {
			t.Errorf("Lock = %v", err)
		}
		if err := <-unlocked; err != nil || b.relays.Load() != 1 {
			t.Errorf("Unlock = %v, after %d relays", err, b.relays.Load())
		}
		time.Sleep(2 * time.Second) // less than the lease that a late grant would get
		wantHeld(t, b, "k", false)
	})
}

// A panic in the backend is its caller's, and holds up nobody else.
func TestRelayPanics(t *testing.T) {
	b := &relayer{hooked: hook()}
	b.relay = func(context.Context, backend.Claim, backend.Claim) (error, backend.Grant, error) { panic("broken") }
	cfg := strict
	cfg.TTL = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		l, err := locker.New(b, locker.Bare, cfg)
		if err != nil {
			t.Fatal(err)
		}
		g := mustLock(t, l, "k")
		next := make(chan *locker.Guard[struct{}])
		for range 2 {
			go func() { next <- mustLock(t, l, "k") }()
			synctest.Wait()
		}
		_ = g.Unlock()
		second := <-next
		synctest.Wait()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_ = second.Unlock()
		}()
		if err := (<-next).Unlock(); err != nil { // when the lease of the one before has run out
			t.Error(err)
		}
	})
}

// The lease that a relay brings counts from before the relay was sent, like any other.
// covers: I1
func TestRelayDeadline(t *testing.T) {
	b := &relayer{hooked: hook()}
	var sent time.Time
	b.relay = func(ctx context.Context, ended, next backend.Claim) (error, backend.Grant, error) {
		sent = time.Now()
		released, g, err := backend.RelayOf(ctx, b.Backend, ended, next)
		time.Sleep(5 * time.Second)
		return released, g, err
	}
	bubble(t, b, strict, func(t *testing.T, l *locker.Client[struct{}]) {
		guards := make(chan *locker.Guard[struct{}])
		first := mustLock(t, l, "k")
		for range 2 {
			go func() { guards <- mustLock(t, l, "k") }()
			synctest.Wait()
		}
		if err := first.Unlock(); err != nil {
			t.Error(err)
		}
		second := <-guards
		synctest.Wait() // its agent stands back
		if err := second.Unlock(); err != nil {
			t.Error(err)
		}
		third := <-guards
		if until := third.Until(); sent.IsZero() || until.After(sent.Add(strict.TTL)) {
			t.Errorf("believed until %v after the relay was sent, with a TTL of %v", until.Sub(sent), strict.TTL)
		}
		if err := third.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
