package locker_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// counted is a backend that reserves tokens and knows who asks.
type counted struct {
	*hooked
	mu      sync.Mutex
	next    uint64
	tokens  map[string]uint64 // by owner
	waiting map[string]bool   // owners that were refused and did not go away
	most    int               // of them at once
	grants  int
}

func count() *counted {
	b := &counted{hooked: plain(), tokens: map[string]uint64{}, waiting: map[string]bool{}}
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		g, err := b.Backend.TryAcquire(ctx, c)
		b.mu.Lock()
		defer b.mu.Unlock()
		if err != nil {
			b.waiting[c.Owner] = true
			b.most = max(b.most, len(b.waiting))
			return g, err
		}
		delete(b.waiting, c.Owner)
		if b.tokens[c.Owner] == 0 {
			b.tokens[c.Owner] = b.next + 1
			b.next += uint64(max(c.Reserve, 1))
			b.grants++
		}
		g.Token, g.Reserved = b.tokens[c.Owner], c.Reserve
		return g, err
	}
	b.release = func(ctx context.Context, c backend.Claim) error {
		b.mu.Lock()
		delete(b.waiting, c.Owner)
		b.mu.Unlock()
		return storetest.Release(ctx, b.Backend, c)
	}
	return b
}

// seen returns how many grants there were, and how many owners waited at once.
func (b *counted) seen() (grants, most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.grants, b.most
}

// crowd has n goroutines come one after the other and lock k, and returns their numbers in the
// order they got in, with the tokens they got.
func crowd(t *testing.T, l *locker.Client[struct{}], n int,
	section time.Duration,
) (order []int, tokens []uint64) {
	var mu sync.Mutex
	var all sync.WaitGroup
	first := mustLock(t, l, "k")
	for i := range n {
		all.Go(func() {
			time.Sleep(time.Duration(i) * time.Microsecond)
			g, err := l.Lock(t.Context(), "k")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order, tokens = append(order, i), append(tokens, g.Hold().Token)
			mu.Unlock()
			time.Sleep(section)
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(time.Second)
	_ = first.Unlock()
	all.Wait()
	return order, tokens
}

// covers: W4, K7
func TestLeaseIsHandedOnInOrderWithOwnTokens(t *testing.T) {
	b := count()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		order, tokens := crowd(t, l, 64, 0)
		if len(order) != 64 || !slices.IsSorted(order) {
			t.Errorf("not first come, first served: %v", order)
		}
		if !slices.IsSorted(tokens) || len(slices.Compact(tokens)) != 64 {
			t.Errorf("tokens do not rise strictly: %v", tokens)
		}
		if grants, most := b.seen(); grants > 3 || most > 1 {
			t.Errorf("the store granted %d times for 65 holds; %d of one process waited "+
				"in it at once", grants, most)
		}
	})
}

func TestPassesAndPassTimeBoundTheCohort(t *testing.T) {
	for name, try := range map[string]struct {
		wait        waiting.Config
		section     time.Duration
		least, most int
	}{
		// 65 holds in fives
		"passes": {waiting.Config{Passes: 4, PassTime: time.Hour}, 0, 13, 14},
		// three or four in 10ms
		"pass time": {waiting.Config{Passes: 64}, 4 * time.Millisecond, 16, 23},
		"never":     {waiting.Config{Passes: -1}, 0, 65, 65},
	} {
		t.Run(name, func(t *testing.T) {
			b := count()
			bubble(t, b, locker.Config{Wait: try.wait},
				func(t *testing.T, l *locker.Client[struct{}]) {
					order, tokens := crowd(t, l, 64, try.section)
					if len(order) != 64 || !slices.IsSorted(tokens) ||
						len(slices.Compact(tokens)) != 64 {
						t.Errorf("order %v, tokens %v", order, tokens)
					}
					if grants, most := b.seen(); grants < try.least || grants > try.most ||
						most > 1 {
						t.Errorf("the store granted %d times, want %d to %d; %d waited in it",
							grants, try.least, try.most, most)
					}
					// One that is refused or comes too early, one that is granted.
					if n := b.acquires.Load(); n > int64(2*try.most)+4 {
						t.Errorf("%d attempts for at most %d grants", n, try.most)
					}
				})
		})
	}
}

func TestWithoutFencingNoTokensAreMadeUp(t *testing.T) {
	b := hook()
	b.caps = &backend.Capabilities{Watch: true, Inspect: true, MinTTL: time.Millisecond}
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		g, err := b.Backend.TryAcquire(ctx, c)
		g.Token = 0
		return g, err
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		order, tokens := crowd(t, l, 20, 0)
		if len(order) != 20 || slices.Max(tokens) != 0 {
			t.Errorf("tokens %v from a store that has none", tokens)
		}
		if n := b.releases.Load(); n > 3 {
			t.Errorf("%d releases: leases are not handed on without tokens", n)
		}
	})
}

// A lease that was lost is nobody's to hand on.
func TestLostLeaseIsNotHandedOn(t *testing.T) {
	b := count()
	b.renew = func(context.Context, backend.Claim) error { return backend.ErrLost }
	bubble(t, b, locker.Config{TTL: 3 * time.Second, Wait: waiting.Config{PassTime: time.Hour}},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			next := make(chan *locker.Guard[struct{}])
			go func() { next <- mustLock(t, l, "k") }()
			<-g.Lost()
			wantErr(t, g.Unlock(), locker.ErrLost)
			n := <-next
			if grants, _ := b.seen(); grants != 2 || n.Hold().Token <= g.Hold().Token+1 {
				t.Errorf("the next hold has token %d after %d, by %d grants", n.Hold().Token,
					g.Hold().Token, grants)
			}
			_ = n.Unlock()
		})
}

// The store's word that the lease is gone comes while Unlock waits for that renewal: the next in
// line must not get the lease.
// covers: B5
func TestLeaseRefutedDuringUnlockIsNotHandedOn(t *testing.T) {
	b := count()
	b.renew = func(ctx context.Context, _ backend.Claim) error {
		<-ctx.Done() // until Unlock tells it to stop
		return backend.ErrLost
	}
	cfg := locker.Config{TTL: 30 * time.Second, Wait: waiting.Config{PassTime: time.Hour}}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		next := make(chan *locker.Guard[struct{}])
		go func() { next <- mustLock(t, l, "k") }()
		for b.renews.Load() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		_ = g.Unlock()
		n := <-next
		if grants, _ := b.seen(); grants != 2 {
			t.Errorf("%d grants: a lease that the store had called gone was handed on", grants)
		}
		_ = n.Unlock()
	})
}

func TestShortLeaseIsNotHandedOn(t *testing.T) {
	b := count()
	b.renew = func(context.Context, backend.Claim) error { return errSilence }
	cfg := locker.Config{TTL: 10 * time.Second, Wait: waiting.Config{PassTime: time.Hour}}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		next := make(chan *locker.Guard[struct{}])
		go func() { next <- mustLock(t, l, "k") }()
		time.Sleep(9500 * time.Millisecond)
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		n := <-next
		if left := time.Until(n.Until()); left < 9*time.Second {
			t.Errorf("a lease with %v left was handed on", left)
		}
		_ = n.Unlock()
	})
}

// covers: W8
func TestLocalWaiterGivesUp(t *testing.T) {
	b := count()
	bubble(t, b, locker.Config{Service: "till"}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Lock(ctx, "k")
		wantErr(t, err, locker.ErrNotAcquired, context.DeadlineExceeded, backend.ErrHeld)
		var held *backend.HeldError
		if !errors.As(err, &held) || held.Holder.Service != "till" {
			t.Errorf("the error does not name the holder: %v", err)
		}
		start := time.Now()
		_, err = l.Lock(t.Context(), "k", locker.WaitLimit(time.Second))
		wantErr(t, err, locker.ErrNotAcquired, context.DeadlineExceeded)
		if d := time.Since(start); d != time.Second {
			t.Errorf("a wait of 1s took %v", d)
		}
		synctest.Wait()
		n := b.acquires.Load()
		time.Sleep(time.Minute)
		if b.acquires.Load() != n {
			t.Error("the agent asks on for nobody")
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		wantHeld(t, b, "k", false)
	})
}

// The turn and the cancellation come at the same moment: whichever the waiter sees, nothing stays
// held.
// covers: W7
func TestTurnThatComesWithTheCancellation(t *testing.T) {
	b := count()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		got := 0
		for range 300 {
			g := mustLock(t, l, "k")
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			time.AfterFunc(time.Millisecond, func() { _ = g.Unlock() })
			next, err := l.Lock(ctx, "k")
			if err == nil {
				got++
				err = next.Unlock()
			} else if errors.Is(err, locker.ErrNotAcquired) {
				err = nil
			}
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			time.Sleep(time.Second)
			wantHeld(t, b, "k", false)
		}
		if got == 0 || got == 300 {
			t.Errorf("%d of 300 got their turn: the moment was missed", got)
		}
	})
}

// A backend that panics takes its caller down, and nobody else: those who wait behind it are not
// left waiting for ever.
func TestPanicOfTheFirstLeavesTheOthersAlone(t *testing.T) {
	b := count()
	inner := b.acquire
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		if b.acquires.Load() == 1 {
			time.Sleep(time.Second)
			_, _ = inner(ctx, c) // nobody knows what it has done
			panic("boom")
		}
		return inner(ctx, c)
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		go func() {
			defer func() { _ = recover() }()
			_, _ = l.Lock(t.Context(), "k")
		}()
		synctest.Wait()
		// Well before the lease ends that was granted.
		_ = mustLock(t, l, "k", locker.WaitLimit(10*time.Second)).Unlock()
	})
}

func TestRefusalReachesAllWhoWait(t *testing.T) {
	b := count()
	bubble(t, b, locker.Config{Wait: waiting.Config{Passes: -1}},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			inner := b.acquire
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					_, err := l.Lock(t.Context(), "k")
					wantErr(t, err, locker.ErrNotAcquired, backend.ErrDenied)
				})
			}
			synctest.Wait()
			b.acquire = func(context.Context, backend.Claim) (backend.Grant, error) {
				return backend.Grant{}, backend.ErrDenied
			}
			_ = g.Unlock()
			all.Wait()
			synctest.Wait()
			b.acquire = inner
		})
}

func TestOtherTTLsLineUpApart(t *testing.T) {
	b := count()
	bubble(t, b, locker.Config{Wait: waiting.Config{PassTime: time.Hour}},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			time.AfterFunc(time.Second, func() { _ = g.Unlock() })
			other := mustLock(t, l, "k", locker.TTL(5*time.Second))
			if grants, _ := b.seen(); grants != 2 || time.Until(other.Until()) > 5*time.Second {
				t.Errorf("%d grants; a lease of 30s was handed to one who wants 5s", grants)
			}
			_ = other.Unlock()
		})
}

// Many come, some lose patience, leases get lost: one at a time is inside, and nothing is left.
// covers: W7, W13, G5
func TestCrewStorm(t *testing.T) {
	for seed := range uint64(20) {
		b := count()
		cfg := locker.Config{TTL: time.Second, Wait: waiting.Config{Passes: 3}}
		bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
			var inside, granted int
			var last uint64
			var mu sync.Mutex
			var all sync.WaitGroup
			for i := range uint64(60) {
				rng := rand.New(rand.NewPCG(seed, i))
				d := func(most time.Duration) time.Duration {
					return time.Duration(rng.Int64N(int64(most)))
				}
				all.Go(func() {
					time.Sleep(d(100 * time.Millisecond))
					ctx, cancel := context.WithTimeout(t.Context(), d(200*time.Millisecond))
					defer cancel()
					g, err := l.Lock(ctx, "k")
					if err != nil {
						wantErr(t, err, locker.ErrNotAcquired, context.DeadlineExceeded)
						return
					}
					mu.Lock()
					if inside++; inside > 1 || g.Hold().Token <= last {
						t.Errorf("seed %d: %d inside, token %d after %d", seed, inside,
							g.Hold().Token, last)
					}
					last, granted = g.Hold().Token, granted+1
					mu.Unlock()
					time.Sleep(d(5 * time.Millisecond))
					mu.Lock()
					inside--
					mu.Unlock()
					if err := g.Unlock(); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			time.Sleep(time.Second)
			wantHeld(t, b, "k", false)
			if granted < 10 {
				t.Errorf("seed %d: only %d got in", seed, granted)
			}
		})
	}
}

// slowTurn is an EventObserver under which whoever is handed a lease is slow to take it up.
type slowTurn struct {
	record
	by time.Duration
}

func (s *slowTurn) Event(_ context.Context, e locker.Event) {
	if e.Kind == locker.EventWake && e.Reason == locker.WakePass {
		time.Sleep(s.by)
	}
}

// The store's word that the lease is gone comes while the lease is on its way from one goroutine to
// the next, and nobody holds: the next one's hold begins lost.
// covers: B5
func TestLeaseRefutedWhileItIsHandedOn(t *testing.T) {
	b := count()
	var refutes atomic.Bool
	b.renew = func(ctx context.Context, c backend.Claim) error {
		if refutes.Load() {
			return backend.ErrLost
		}
		return b.Backend.Renew(ctx, c)
	}
	cfg := locker.Config{
		TTL: 30 * time.Second, Wait: waiting.Config{PassTime: time.Hour},
		Observer: &slowTurn{by: 3 * time.Second},
	}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		first := mustLock(t, l, "k")
		next := make(chan *locker.Guard[struct{}])
		go func() { next <- mustLock(t, l, "k") }()
		time.Sleep(8500 * time.Millisecond) // it is renewed after 9 to 11 seconds
		refutes.Store(true)
		if err := first.Unlock(); err != nil {
			t.Error(err)
		}
		n := <-next
		if b.renews.Load() != 1 {
			t.Fatalf("%d renewals while the lease was handed on, want 1", b.renews.Load())
		}
		_, err := n.Value()
		wantErr(t, err, locker.ErrLost, backend.ErrLost)
		wantErr(t, context.Cause(n.Context()), locker.ErrLost)
		wantErr(t, n.Unlock(), locker.ErrLost)
	})
}

// A signal that the lease is gone comes while the lease is on its way, and there is no hold to ask
// the store for: it is asked as soon as there is, and not at the next renewal.
// covers: B5
func TestSignalOfALossWhileTheLeaseIsHandedOn(t *testing.T) {
	b := count()
	caps := *b.caps
	caps.Loss = true
	b.caps = &caps
	var refutes atomic.Bool
	b.renew = func(ctx context.Context, c backend.Claim) error {
		if refutes.Load() {
			return backend.ErrLost
		}
		return b.Backend.Renew(ctx, c)
	}
	cfg := locker.Config{
		TTL: 30 * time.Second, Wait: waiting.Config{PassTime: time.Hour},
		Observer: &slowTurn{by: time.Second},
	}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		gone := make(chan backend.Wake)
		b.watch = func(context.Context, backend.Claim) (<-chan backend.Wake, error) {
			return gone, nil
		}
		first := mustLock(t, l, "k")
		next := make(chan *locker.Guard[struct{}])
		go func() { next <- mustLock(t, l, "k") }()
		time.Sleep(5 * time.Second)
		refutes.Store(true)
		began := time.Now()
		time.AfterFunc(500*time.Millisecond, func() { gone <- backend.Wake{} })
		if err := first.Unlock(); err != nil {
			t.Error(err)
		}
		n := <-next
		<-n.Lost()
		// It is renewed 5 seconds from the beginning, or more.
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("lost after %v, which is the renewal's doing", d)
		}
		wantErr(t, n.Unlock(), locker.ErrLost)
	})
}
