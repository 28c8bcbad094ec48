package backendtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
)

// An env is what a rule works with: clients, keys of its own, and ways to say what must be. Helpers
// that end in failure must be called from the rule's goroutine; in others, only Error and Errorf.
type env struct {
	testing.TB
	suite
	prefix string
	ctx    context.Context // bounds the rule, so that a verb that hangs is a failure that names it
	shape  *shape          // what plays the mutex, if not a plain exclusive claim

	// long is a lease that does not run out while a rule runs, short one that does, and not because
	// a busy machine stands still for a moment.
	long, short time.Duration

	mu      sync.Mutex
	keys    []string // used, for the look at what is left
	clients []backend.Backend
	undo    []func()
	cancel  context.CancelFunc
	asides  sync.WaitGroup
}

func newEnv(tb testing.TB, s suite, prefix string) *env {
	e := &env{
		TB: tb, suite: s, prefix: prefix, long: 2 * time.Minute,
		short: max(2*s.caps.MinTTL, time.Second),
	}
	limit := 30 * 24 * time.Hour
	if !s.h.Bubble {
		e.long, e.short, limit = slower(e.long), slower(e.short),
			slower(time.Minute+40*s.caps.MinTTL)
	}
	e.ctx, e.cancel = context.WithTimeout(context.Background(), limit)
	return e
}

// open returns a new client of the store, which is closed at the end.
func (e *env) open() backend.Backend {
	e.Helper()
	b := e.h.Open(e.TB)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clients = append(e.clients, b)
	return b
}

// later runs f at the end of the rule, before the look at what is left.
func (e *env) later(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.undo = append(e.undo, f)
}

// slowLeases says whether the shortest lease takes seconds.
func slowLeases(caps backend.Capabilities) bool { return caps.MinTTL >= time.Second }

// aside has f wait for a lease beside others where that takes seconds; the rule's end waits for it.
// Elsewhere the rule waits itself: there what f finds depends on how often it can look.
func (e *env) aside(f func()) {
	if slowLeases(e.caps) {
		e.asides.Go(f)
	} else {
		f()
	}
}

// close undoes what the rule did, and fails it if anything is left then.
func (e *env) close() {
	e.Helper()
	defer e.cancel()
	e.asides.Wait()
	for i := len(e.undo) - 1; i >= 0; i-- {
		e.undo[i]()
	}
	if !e.Failed() { // else what is left is a consequence
		for _, left := range e.leftovers() {
			e.Errorf("left behind in the store: %s", left)
		}
	}
	for _, b := range e.clients {
		if err := b.Close(); err != nil {
			e.Errorf("Close: %v", err)
		}
	}
}

// leftovers lists the holds that the rule left.
func (e *env) leftovers() []string {
	e.Helper()
	if e.h.Leftovers != nil {
		return e.h.Leftovers(e.TB, e.prefix)
	}
	if !e.caps.Inspect || len(e.keys) == 0 {
		return nil
	}
	b := e.h.Open(e.TB)
	defer func() { _ = b.Close() }()
	var left []string
	for _, key := range e.keys {
		state, err := b.Inspect(e.ctx, key)
		if err != nil {
			continue // the rule put something else there
		}
		for _, h := range state.Holders {
			left = append(left, "a hold of "+short(key)+" by "+h.Owner)
		}
		for _, w := range state.Waiters {
			left = append(left, "a place in the queue for "+short(key)+" of "+w.Owner)
		}
	}
	return left
}

// key returns a key of this rule alone, ready for the rule's shape. It may fail, so it is called in
// the rule's goroutine.
func (e *env) key(name string) string {
	key := e.prefix + name
	e.mu.Lock()
	known := slices.Contains(e.keys, key)
	if !known {
		e.keys = append(e.keys, key)
	}
	e.mu.Unlock()
	if !known {
		e.crowd(key)
	}
	return key
}

// claim returns a fresh claim of key with a long lease.
func (e *env) claim(key string) backend.Claim {
	return e.form(backend.Claim{
		Key: key, Owner: backend.NewOwner(), TTL: e.long,
		Meta: backend.Meta{Service: "backendtest", Host: "host-1", PID: 4711},
	})
}

// brief returns a fresh claim of key with a short lease.
func (e *env) brief(key string) backend.Claim {
	c := e.claim(key)
	c.TTL = e.short
	return c
}

// acquire must grant c, which is released at the end.
func (e *env) acquire(b backend.Backend, c backend.Claim) backend.Grant {
	e.Helper()
	var g backend.Grant
	err := e.answered(func() (err error) {
		g, err = b.TryAcquire(e.ctx, c)
		return err
	})
	e.forget(b, c)
	if err != nil {
		e.Fatalf("TryAcquire(%s) = %v, want a grant", short(c.Key), err)
	}
	return g
}

// forget releases c at the end, whatever becomes of it.
func (e *env) forget(b backend.Backend, c backend.Claim) {
	e.later(func() {
		c.NoneInFlight = true
		_, err := b.Release(context.WithoutCancel(e.ctx), c)
		if errors.Is(err, backend.ErrClosed) { // by the rule itself
			other := e.h.Open(e.TB)
			_, _ = other.Release(context.WithoutCancel(e.ctx), c)
			_ = other.Close()
		}
	})
}

// held must refuse c because another claim holds, whose lease is long.
func (e *env) held(b backend.Backend, c backend.Claim) backend.HeldError {
	e.Helper()
	return e.heldBy(b, c, history.Broken)
}

// refused must refuse c because another claim holds, or waits before it. What is granted instead
// may be due to a machine that stood still for longer than a lease.
func (e *env) refused(b backend.Backend, c backend.Claim) backend.HeldError {
	e.Helper()
	return e.heldBy(b, c, "")
}

func (e *env) heldBy(b backend.Backend, c backend.Claim, broken string) backend.HeldError {
	e.Helper()
	g, err := b.TryAcquire(e.ctx, c)
	if err == nil {
		e.forget(b, c)
		e.Fatalf("%sTryAcquire(%s) granted token %d while another claim holds", broken,
			short(c.Key), g.Token)
	}
	var held *backend.HeldError
	if !errors.Is(err, backend.ErrHeld) || !errors.As(err, &held) {
		e.Fatalf("TryAcquire(%s) = %v, want a *backend.HeldError", short(c.Key), err)
	}
	return *held
}

// renewed must find c holding.
func (e *env) renewed(b backend.Backend, c backend.Claim) {
	e.Helper()
	e.holding("Renew", c, e.answered(func() error { return b.Renew(e.ctx, c) }))
}

// holding must be the answer to a claim that holds. One whose lease is long cannot have lost it.
func (e *env) holding(verb string, c backend.Claim, err error) {
	e.Helper()
	if errors.Is(err, backend.ErrLost) && c.TTL >= e.long {
		e.broken("%s(%s) = %v, long before its lease can be over", verb, short(c.Key), err)
		e.FailNow()
	}
	if err != nil {
		e.Fatalf("%s(%s) = %v, want nil: it held until now", verb, short(c.Key), err)
	}
}

// broken fails the rule for a broken promise: two hold at once, a token fell, a holder was not told
// that it lost its lock, or the value is not the one that the last holder saved. No second run of
// the tests undoes it, see internal/repo/skips: so what a machine that stands still can also do is
// not for it.
func (e *env) broken(format string, args ...any) {
	e.Helper()
	e.Errorf(history.Broken+format, args...)
}

// release must find c holding. It returns what the release told, if its first request was answered.
func (e *env) release(b backend.Backend, c backend.Claim) (told backend.Released, answered bool) {
	e.Helper()
	unknown := false
	err := e.answered(func() (err error) {
		told, err = b.Release(e.ctx, c)
		if unknown && errors.Is(err, backend.ErrLost) { // the one before it did release
			return nil
		}
		unknown = !answer(err)
		return err
	})
	e.holding("Release", c, err)
	return told, !unknown
}

// answer reports whether err, which may be nil, is what a store answered that was reached.
func answer(err error) bool {
	return backend.AnswerOf(err) != backend.Unknown && !errors.Is(err, backend.ErrUnavailable)
}

// answered is f, which sends one request. On a machine so busy that clients and servers give each
// other up, f is repeated until it has an answer, as an unknown answer may be; on others the first
// attempt must have one.
func (e *env) answered(f func() error) error {
	err := f()
	for start := time.Now(); slowness > 1.5 && !e.h.Bubble && !answer(err) &&
		time.Since(start) < patience; err = f() {
		e.pause(20 * time.Millisecond)
	}
	return err
}

// free must grant key to a new claim, and gives it back.
func (e *env) free(b backend.Backend, key string) {
	e.Helper()
	c := e.claim(key)
	c.NoneInFlight = true
	g, err := b.TryAcquire(e.ctx, c)
	if err != nil {
		e.Fatalf("TryAcquire(%s) = %v, want a grant: the key is free", short(key), err)
	}
	if _, err := b.Release(e.ctx, c); err != nil {
		e.Fatalf("Release(%s) of token %d = %v", short(key), g.Token, err)
	}
}

// lost must be an ErrLost, as a claim that does not hold is told, whenever that may be.
func (e *env) lost(what string, err error) {
	e.Helper()
	if err == nil {
		e.broken("%s = nil, want backend.ErrLost", what)
		e.FailNow()
	}
	if !errors.Is(err, backend.ErrLost) {
		e.Fatalf("%s = %v, want backend.ErrLost", what, err)
	}
}

// is fails unless err wraps target.
func (e *env) is(what string, err, target error) {
	e.Helper()
	if !errors.Is(err, target) {
		e.Errorf("%s = %v, want an error that is %q", what, err, target)
	}
}

// pause waits for d of the rule's time, which is none in a bubble. It is for pacing; nothing is
// true just because it is over.
func (e *env) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.ctx.Done():
	}
}

// await asks until ok says so, and fails the rule if it does not within limit. It asks less often
// as time goes on: other rules run beside.
func (e *env) await(what string, limit time.Duration, ok func() bool) {
	e.Helper()
	for start := time.Now(); !ok(); e.pause(min(2*time.Millisecond+time.Since(start)/20,
		25*time.Millisecond)) {
		if time.Since(start) > limit {
			e.Fatalf("after %v still waiting: %s", limit, what)
		}
	}
}

// parallel calls f(0) to f(n-1) concurrently and waits for them.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
