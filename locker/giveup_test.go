package locker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/waiting"
)

// crowded returns a client of which one holds "k" and others are to wait for it, and the cohort
// that they wait in.
func crowded(t *testing.T) (l *Client[struct{}], co *cohort) {
	t.Helper()
	b := membackend.New()
	t.Cleanup(func() { _ = b.Close() })
	l, err := New(b, Bare, Config{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Unlock(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	l.core.mu.Lock()
	defer l.core.mu.Unlock()
	for _, co = range l.core.cohorts {
		return l, co
	}
	t.Fatal("no cohort")
	return nil, nil
}

func (co *cohort) awaitWaiting(n int) {
	for co.waits() != n {
		runtime.Gosched()
	}
}

// waits is how many are in the queue of co, counted.
func (co *cohort) waits() (n int) {
	co.mu.Lock()
	defer co.mu.Unlock()
	for w := co.first; w != nil; w = w.next {
		n++
	}
	if n != co.waiting {
		panic(fmt.Sprintf("%d in the queue, and %d wait", n, co.waiting))
	}
	return n
}

// Those who give up at once come back though others have the Client's mutex, and nobody estimates
// anything: so no number of them is in the way of those who want other keys.
//
// covers: W7
func TestGivingUpNeedsNoMutex(t *testing.T) {
	l, co := crowded(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const n = 1000
	back := make(chan error, n)
	for range n {
		go func() {
			_, err := l.Lock(ctx, "k")
			back <- err
		}()
	}
	co.awaitWaiting(n)
	l.core.mu.Lock()
	cancel()
	timeout := time.After(15 * time.Second) // they need milliseconds
	defer l.core.mu.Unlock()
	for i := range n {
		select {
		case err := <-back:
			var held *HeldError
			if !errors.As(err, &held) || held.Position < 1 || held.Position > n ||
				!errors.Is(err, context.Canceled) || !errors.Is(err, backend.ErrHeld) {
				t.Fatalf("%d came back with %v", i, err)
			}
		case <-timeout:
			t.Fatalf("%d of %d came back", i, n)
		}
	}
}

// Of thousands whose one context ends few are woken at once, so whoever can run besides has its
// turn soon.
//
// covers: W7
func TestManyWhoGiveUpComeBackByAndBy(t *testing.T) {
	l, co := crowded(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const n = 10_000
	var back atomic.Int64
	for range n {
		go func() {
			if _, err := l.Lock(ctx, "k"); !errors.Is(err, context.Canceled) ||
				!errors.Is(err, backend.ErrHeld) {
				t.Error(err)
			}
			back.Add(1)
		}()
	}
	co.awaitWaiting(n)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	cancel()
	var most int64
	for before := int64(0); before < n; {
		runtime.Gosched()
		now := back.Load()
		most, before = max(most, now-before), now
	}
	if most > n/4 {
		t.Errorf("%d came back before another goroutine had its turn", most)
	}
}

// Who waits among many with another context is not taken for one of them, and gets the lease in its
// turn; nothing of them is left when they have left in some other way.
//
// covers: W7
func TestCrowdsWithContextsOfTheirOwn(t *testing.T) {
	l, co := crowded(t)
	const each = 3 * fewAlike
	contexts, cancels := make([]context.Context, 4), make([]context.CancelFunc, 4)
	var back [4]chan error
	for i := range contexts {
		contexts[i], cancels[i] = context.WithCancel(t.Context())
		back[i] = make(chan error, each)
		for n := range each {
			go func() {
				g, err := l.Lock(contexts[i], "k")
				if err == nil {
					err = g.Unlock()
				}
				back[i] <- err
			}()
			co.awaitWaiting(i*each + n + 1)
		}
	}
	gaveUp := func(i int) {
		cancels[i]()
		for range each {
			if err := <-back[i]; !errors.Is(err, context.Canceled) ||
				!errors.Is(err, backend.ErrHeld) {
				t.Error(err)
			}
		}
	}
	gaveUp(2)
	if n := co.waits(); n != 3*each {
		t.Fatalf("%d wait, want %d", n, 3*each)
	}
	gaveUp(0)
	if err := l.core.allLeases()[0].hold.unlock(byUnlock, nil); err != nil {
		t.Error(err)
	}
	for _, i := range []int{1, 3} {
		for range each {
			if err := <-back[i]; err != nil {
				t.Error(err)
			}
		}
		cancels[i]() // nobody is left to hear of it
	}
}

// Those who gave up behind somebody who is patient are not kept.
func TestThoseWhoGaveUpAreForgotten(t *testing.T) {
	l, co := crowded(t)
	patient, cancel := context.WithCancel(t.Context())
	back := make(chan error, 1)
	lock := func(ctx context.Context) {
		_, err := l.Lock(ctx, "k")
		back <- err
	}
	go lock(patient)
	co.awaitWaiting(1)
	for range 10_000 {
		ctx, cancel := context.WithCancel(t.Context())
		go lock(ctx)
		co.awaitWaiting(2)
		cancel()
		<-back //nolint:errcheck // its context ended
		co.awaitWaiting(1)
	}
	cancel()
	<-back //nolint:errcheck // its context ended
}

// Who gave up is passed over: the next gets the lease.
//
// covers: W7
func TestWhoGaveUpIsPassedOver(t *testing.T) {
	b := membackend.New()
	defer b.Close()
	l, err := New(b, Bare, Config{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	co, _ := g.h.lease.cohort.(*cohort)
	type outcome struct {
		g   *Guard[struct{}]
		err error
	}
	back := make(chan outcome, 2)
	lock := func(ctx context.Context) {
		g, err := l.Lock(ctx, "k")
		back <- outcome{g, err}
	}
	impatient, cancel := context.WithCancel(t.Context())
	go lock(impatient)
	co.awaitWaiting(1)
	go lock(t.Context())
	co.awaitWaiting(2)
	cancel()
	if first := <-back; !errors.Is(first.err, context.Canceled) {
		t.Fatal(first.err)
	}
	if err := g.Unlock(); err != nil {
		t.Fatal(err)
	}
	select {
	case next := <-back:
		if next.err != nil || next.g.Unlock() != nil {
			t.Error(next.err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the next did not get the lease")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A turn and the end of its waiter's context come together, in either order, and the lease is given
// back: nobody has it, and nobody renews it.
//
// covers: W7
func TestTurnOfWhoGivesUp(t *testing.T) {
	store := membackend.New()
	defer store.Close()
	l, err := New(store, Bare, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 500 {
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		co, _ := g.h.lease.cohort.(*cohort)
		ctx, cancel := context.WithCancel(t.Context())
		back := make(chan error, 1)
		go func() {
			g, err := l.Lock(ctx, "k")
			if err == nil {
				err = g.Unlock() // it was not late
			} else if errors.Is(err, context.Canceled) {
				err = nil
			}
			back <- err
		}()
		co.awaitWaiting(1)
		if round%2 == 0 {
			cancel()
			err = g.Unlock()
		} else {
			err = g.Unlock()
			cancel()
		}
		cancel()
		if err = errors.Join(err, <-back); err != nil {
			t.Fatal(err)
		}
		if n := len(l.core.allLeases()); n > 0 {
			t.Fatalf("round %d: a lease is left that nobody holds", round)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A turn that is there when its waiter looks is no hold, if its context has ended as well.
//
// covers: W7
func TestTurnThatComesFirst(t *testing.T) {
	store := membackend.New()
	defer store.Close()
	l, err := New(store, Bare, Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 30 { // which of the two it sees first is drawn by lot
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		co, _ := g.h.lease.cohort.(*cohort)
		co.mu.Lock()
		me := co.enqueue(ctx, &call{}, false)
		co.mu.Unlock()
		if err := g.Unlock(); err != nil {
			t.Fatal(err)
		}
		if lease, err := co.await(ctx, me, Hold{}); lease != nil || err == nil {
			t.Fatalf("a lease %v, and %v", lease != nil, err)
		}
		if n := len(l.core.allLeases()); n > 0 {
			t.Fatal("a lease is left that nobody holds")
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// The store grants the key at the moment at which the last who waits for it gives up: it is
// released.
//
// covers: W7
func TestGrantThatNobodyWants(t *testing.T) {
	store := membackend.New()
	defer store.Close()
	first, err := New(store, Bare, Config{})
	if err != nil {
		t.Fatal(err)
	}
	granted, looked := make(chan struct{}), make(chan struct{})
	l, err := New(store, Bare, Config{Observer: granting(func() {
		granted <- struct{}{}
		<-looked
	})})
	if err != nil {
		t.Fatal(err)
	}
	g, err := first.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	back := make(chan error, 1)
	go func() {
		_, err := l.Lock(ctx, "k", WaitMode(waiting.Poll))
		back <- err
	}()
	var co *cohort
	for co == nil {
		l.core.mu.Lock()
		for _, co = range l.core.cohorts {
		}
		l.core.mu.Unlock()
		runtime.Gosched()
	}
	co.awaitWaiting(1)
	if err := g.Unlock(); err != nil {
		t.Fatal(err)
	}
	<-granted // and the acquirer is still to tell the waiter,
	cancel()  // who gives up meanwhile
	co.awaitWaiting(0)
	looked <- struct{}{}
	if err := <-back; !errors.Is(err, context.Canceled) {
		t.Errorf("Lock = %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if state, err := store.Inspect(t.Context(), "k"); err != nil || len(state.Holders) > 0 {
		t.Errorf("left: %+v, %v", state.Holders, err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
}

// Who has given up is no longer counted: the heartbeats of those who come later are as frequent as
// if nobody had waited before.
//
// covers: W13
func TestHeartbeatsAfterManyGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := membackend.New()
		l, err := New(store, Bare, Config{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		held := backend.Claim{Key: "k", Owner: "o", TTL: 24 * time.Hour, NoneInFlight: true}
		if _, err := store.TryAcquire(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		giveUp := func(after time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			if _, err := l.Lock(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		for range perClient {
			giveUp(10 * time.Millisecond)
		}
		var last sync.WaitGroup
		last.Go(func() { giveUp(time.Second) })
		synctest.Wait()
		beats := &l.core.beats
		beats.mu.Lock()
		if n := beats.interval("k"); n != l.core.cfg.Wait.Fallback {
			t.Errorf("the heartbeats of the only one who waits are %v apart, want %v", n,
				l.core.cfg.Wait.Fallback)
		}
		beats.mu.Unlock()
		last.Wait()
		_, _ = l.Close(), store.Close()
	})
}

// granting is told when a lease was granted that nobody has yet.
type granting func()

func (granting) Begin(ctx context.Context, _ string, _ Hold) (context.Context, func(Hold, error)) {
	return ctx, ignore
}

func (told granting) Event(_ context.Context, e Event) {
	if e.Kind == EventGrant {
		told()
	}
}

// Many releases come to be owed before it is known that the store is silent: the list is cut then,
// and not only by those that come later.
//
// covers: W13, E2
func TestOwedReleasesOfABurstAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := membackend.New()
		l, err := New(silent{store}, Bare,
			Config{TTL: time.Minute, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 3 * maxPending {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := l.TryLock(ctx, fmt.Sprint(i)); !errors.Is(err,
					context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		time.Sleep(maxTimeout + 10*firstTry)
		synctest.Wait()
		l.core.pending.mu.Lock()
		if n := l.core.pending.listed; n > maxPending+maxWorkers {
			t.Errorf("%d releases are kept for a store that has been silent for longer than %v", n,
				maxTimeout)
		}
		l.core.pending.mu.Unlock()
		_ = l.Close()
		_ = store.Close()
	})
}

// silent is a store that answers nothing.
type silent struct{ backend.Backend }

func (silent) TryAcquire(ctx context.Context, _ backend.Claim) (backend.Grant, error) {
	<-ctx.Done()
	return backend.Grant{}, ctx.Err()
}

func (silent) Release(ctx context.Context, _ backend.Claim) (backend.Released, error) {
	<-ctx.Done()
	return backend.Released{}, ctx.Err()
}

func (silent) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// asked is silent, and counts how often it was asked to release.
type asked struct {
	silent
	times atomic.Int64
}

func (b *asked) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	b.times.Add(1)
	return b.silent.Release(ctx, c)
}

func (b *asked) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if len(claims) > 0 {
		b.times.Add(1)
	}
	return b.silent.ReleaseAll(ctx, claims)
}

// A Close that has run out of time sends nothing more, also of a key that has a request in flight
// then, and tells how many releases it leaves to their leases.
//
// covers: G1, W13
func TestCloseOutOfTimeSendsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := membackend.New()
		b := &asked{silent: silent{store}}
		var out bytes.Buffer
		l, err := New(b, Bare, Config{
			TTL:    time.Minute,
			Logger: slog.New(slog.NewTextHandler(&out, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		// One after the other: the first's release is in flight when the others give up.
		for i := range 5 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(),
					time.Duration(i+1)*10*time.Millisecond)
				defer cancel()
				if _, err := l.TryLock(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		p := &l.core.pending
		states := func() (sent, listed int) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.sent, p.listed
		}
		for sent, listed := states(); sent != 1 || listed != 4; sent, listed = states() {
			time.Sleep(time.Millisecond)
		}
		before := b.times.Load()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Shutdown(ctx); !strings.Contains(err.Error(), "4 releases not confirmed") {
			t.Errorf("Close out of time = %v", err)
		}
		all.Wait()
		synctest.Wait()
		if n := b.times.Load() - before; n > 0 {
			t.Errorf("%d releases were sent after Close", n)
		}
		if sent, listed := states(); sent != 0 || listed != 0 {
			t.Errorf("%d releases are in flight after Close and %d wait for it", sent, listed)
		}
		if s := out.String(); strings.Count(s, "did not confirm") != 1 ||
			!strings.Contains(s, "releases=1") {
			t.Errorf("of the one in flight it logs\n%s", s)
		}
		_ = store.Close()
	})
}

// leisurely is a store that takes a while to release.
type leisurely struct{ backend.Backend }

func (b leisurely) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	waiting.Pause(ctx, 3*time.Second)
	return b.Backend.Release(ctx, c)
}

// A turn comes when its waiter's context has ended. The waiter comes back, and the lease is
// released behind it.
//
// covers: E2, W7
func TestTurnThatComesTooLateIsReleasedBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := membackend.New()
		l, err := New(leisurely{store}, Bare, Config{Wait: waiting.Config{Passes: -1}})
		if err != nil {
			t.Fatal(err)
		}
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		co, _ := g.h.lease.cohort.(*cohort)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		co.mu.Lock()
		me := co.enqueue(ctx, &call{}, false)
		co.give(me, g.h.lease)
		co.mu.Unlock()
		began := time.Now()
		if lease, err := co.await(ctx, me, Hold{}); lease != nil || err == nil {
			t.Errorf("a lease %v, and %v", lease != nil, err)
		}
		if took := time.Since(began); took > withdrawGrace {
			t.Errorf("it came back %v after its end", took)
		}
		time.Sleep(time.Minute)
		state, err := store.Inspect(t.Context(), "k")
		if err != nil || len(state.Holders) > 0 {
			t.Errorf("left: %+v, %v", state.Holders, err)
		}
		_, _, _ = g.Unlock(), l.Close(), store.Close()
	})
}
