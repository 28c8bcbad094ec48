package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// start returns a client in a bubble that the test closes itself.
func start(t *testing.T, b backend.Backend, cfg locker.Config) *locker.Client[struct{}] {
	t.Helper()
	return another(t, b, cfg)
}

// Close ends the contexts of what is held, and waits for who stops and unlocks: nothing was lost,
// and nothing is left.
// covers: C10, G1
func TestCloseEndsContextsAndWaitsForUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := hook()
		l := start(t, b, locker.Config{TTL: 3 * time.Second})
		g := mustLock(t, l, "k")
		unlocked := make(chan error, 1)
		go func() {
			<-g.Context().Done()
			time.Sleep(8 * time.Second) // longer than the TTL: it is renewed meanwhile
			_, err := g.Value()
			wantErr(t, err, locker.ErrClosed)
			unlocked <- g.Unlock()
		}()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		wantErr(t, context.Cause(g.Context()), locker.ErrClosed)
		if errors.Is(context.Cause(g.Context()), locker.ErrLost) {
			t.Error("a hold that was unlocked in time counts as lost")
		}
		if err := <-unlocked; err != nil {
			t.Errorf("Unlock during Close = %v", err)
		}
		wantHeld(t, b, "k", false)
	})
}

// A forgotten Unlock does not hang Close, and is named with its place. An Unlock after Close
// releases in the store.
// covers: C10, G1
func TestCloseNamesWhatIsNotUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := hook()
		l := start(t, b, locker.Config{TTL: time.Hour})
		g := mustLock(t, l, "forgotten")
		began := time.Now()
		err := l.Close()
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("Close took %v, want ten seconds", d)
		}
		wantErr(t, err, context.DeadlineExceeded)
		if err == nil || !strings.Contains(err.Error(), `"forgotten", locked at `) ||
			!strings.Contains(err.Error(), "_test.go:") {
			t.Errorf("Close = %v: does not say what was locked where", err)
		}
		wantErr(t, context.Cause(g.Context()), locker.ErrClosed)
		select {
		case <-g.Lost():
		default:
			t.Error("what Close left behind is not lost")
		}
		wantHeld(t, b, "forgotten", true) // code may be at work under it
		renews := b.renews.Load()
		time.Sleep(30 * time.Minute)
		if n := b.renews.Load(); n != renews {
			t.Errorf("renewed %d times after Close", n-renews)
		}
		_ = g.Unlock()
		wantHeld(t, b, "forgotten", false)
	})
}

// A ctx that has ended before (the usual one of a signal) leaves no lease that a later Unlock would
// not release.
// covers: C10
func TestUnlockAfterShutdownReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := hook()
		l := start(t, b, locker.Config{TTL: time.Hour})
		g := mustLock(t, l, "k")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, l.Shutdown(ctx), context.Canceled)
		if err := g.Unlock(); err != nil {
			t.Errorf("Unlock after Shutdown = %v", err)
		}
		wantHeld(t, b, "k", false)
	})
}

// Everybody in a cohort waits for a silent store for StoreTimeout from when it came, and no longer.
// covers: A7
func TestStoreTimeoutInACohort(t *testing.T) {
	b := hook()
	b.acquire = func(ctx context.Context, _ backend.Claim) (backend.Grant, error) {
		select { // a hung server: each request is bounded by the backend
		case <-time.After(3 * time.Second):
			return backend.Grant{}, errSilence
		case <-ctx.Done():
			return backend.Grant{}, ctx.Err()
		}
	}
	bubble(t, b, locker.Config{TTL: 30 * time.Second, StoreTimeout: 5 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			var all sync.WaitGroup
			for _, late := range []time.Duration{0, 1200 * time.Millisecond, 4 * time.Second} {
				all.Go(func() {
					time.Sleep(late)
					began := time.Now()
					_, err := l.Lock(t.Context(), "k")
					wantErr(t, err, locker.ErrNotAcquired)
					if d := time.Since(began); d < 5*time.Second || d > 6*time.Second {
						t.Errorf("who came after %v failed after %v, want 5s", late, d)
					}
				})
			}
			all.Wait()
		})
}

// A busy store answers some of this client's requests: that is no silence.
func TestCongestionIsNoSilence(t *testing.T) {
	b := hook()
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		if c.Key == "k" && b.acquires.Load() < 60 {
			return backend.Grant{}, errSilence
		}
		return b.Backend.TryAcquire(ctx, c)
	}
	bubble(t, b, locker.Config{StoreTimeout: 4 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			stop := make(chan struct{})
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Second):
						_ = mustLock(t, l, "other").Unlock()
					}
				}
			}()
			g := mustLock(t, l, "k")
			close(stop)
			_ = g.Unlock()
		})
}

// What defaults to the TTL is capped: a long lease does not make a hung server silence the program.
func TestTimeoutsAreCapped(t *testing.T) {
	b := hook()
	b.release = func(ctx context.Context, _ backend.Claim) error { <-ctx.Done(); return errSilence }
	synctest.Test(t, func(t *testing.T) {
		l := start(t, b, locker.Config{TTL: 12 * time.Hour})
		g := mustLock(t, l, "k")
		began := time.Now()
		if err := g.Unlock(); !errors.Is(err, errSilence) {
			t.Errorf("Unlock = %v", err)
		}
		if d := time.Since(began); d > 35*time.Second {
			t.Errorf("Unlock took %v", d)
		}
		b.acquire = func(context.Context, backend.Claim) (backend.Grant, error) {
			return backend.Grant{}, errSilence
		}
		began = time.Now()
		_, err := l.Lock(t.Context(), "other")
		wantErr(t, err, locker.ErrNotAcquired, errSilence)
		if d := time.Since(began); d < 29*time.Second || d > 35*time.Second {
			t.Errorf("Lock gave up after %v, want 30s", d)
		}
		_ = l.Close()
	})
}

// Only the tokens that a grant has reserved are handed on: one more would be the next holder's in
// the store.
// covers: K7, G5
func TestNoMoreTokensThanReserved(t *testing.T) {
	b := hook()
	var mu sync.Mutex
	granted := map[uint64]uint64{} // from each grant's token to the one after its last
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		c.Reserve = 3 // whatever is asked for
		g, err := b.Backend.TryAcquire(ctx, c)
		if err == nil {
			mu.Lock()
			granted[g.Token] = g.Token + uint64(g.Reserved)
			mu.Unlock()
		}
		return g, err
	}
	// Every grant comes by the hook.
	cfg := locker.Config{Wait: waiting.Config{Mode: waiting.Notify, PassTime: time.Hour}}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		first := mustLock(t, l, "k")
		var all sync.WaitGroup
		var last atomic.Uint64
		for range 20 {
			all.Go(func() {
				g := mustLock(t, l, "k")
				token := g.Hold().Token
				if before := last.Swap(token); before >= token {
					t.Errorf("token %d after %d", token, before)
				}
				mu.Lock()
				defer mu.Unlock()
				for from, end := range granted {
					if token >= from && token < end {
						_ = g.Unlock()
						return
					}
				}
				t.Errorf("token %d was granted to nobody: %v", token, granted)
				_ = g.Unlock()
			})
		}
		synctest.Wait()
		_ = first.Unlock()
		all.Wait()
		if len(granted) < 7 {
			t.Errorf("%d grants of three tokens for 21 holds", len(granted))
		}
	})
}

// A leader whose hold ends at MaxHold campaigns again.
func TestLeadGoesOnAfterMaxHold(t *testing.T) {
	bubble(t, hook(), locker.Config{TTL: time.Second, MaxHold: time.Minute},
		func(t *testing.T, l *locker.Client[struct{}]) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			terms := 0
			err := locker.Lead(ctx, l, "k", func(ctx context.Context, _ struct{}) error {
				terms++
				<-ctx.Done()
				return ctx.Err()
			})
			wantErr(t, err, context.DeadlineExceeded)
			if terms < 9 {
				t.Errorf("led %d times in ten minutes with terms of one", terms)
			}
		})
}

// While a store is silent, what callers leave behind is a bounded list and one request at a time.
// covers: G1, X10
func TestOwedReleasesAreBounded(t *testing.T) {
	b := hook()
	var hung atomic.Bool
	hung.Store(true)
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		g, err := b.Backend.TryAcquire(ctx, c) // executed, and not answered
		if !hung.Load() {
			return g, err
		}
		<-ctx.Done()
		return backend.Grant{}, ctx.Err()
	}
	var under, most atomic.Int64
	b.release = func(ctx context.Context, c backend.Claim) error {
		if hung.Load() {
			n := under.Add(1)
			defer under.Add(-1)
			most.Store(max(most.Load(), n))
			<-ctx.Done()
			return ctx.Err()
		}
		return storetest.Release(ctx, b.Backend, c)
	}
	bubble(t, b, locker.Config{TTL: time.Hour}, func(t *testing.T, l *locker.Client[struct{}]) {
		before := runtime.NumGoroutine()
		for range 40 {
			var all sync.WaitGroup
			for i := range 50 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					_, err := l.TryLock(ctx, fmt.Sprint("k", i))
					wantErr(t, err, locker.ErrNotAcquired, context.DeadlineExceeded)
				})
			}
			all.Wait()
		}
		synctest.Wait() // requests whose callers have just returned
		// While a goroutine ends, the runtime may count 32 too many: those it moves from one list
		// of free ones to the other.
		if n := runtime.NumGoroutine() - before; n > 200 {
			t.Errorf("%d goroutines are left of 2000 calls", n)
		}
		if n := most.Load(); n > 51 { // the first fifty find out together
			t.Errorf("%d releases at once", n)
		}
		hung.Store(false)
		time.Sleep(10 * time.Second)
		for i := range 50 {
			wantHeld(t, b, fmt.Sprint("k", i), false)
		}
	})
}

// beating counts the requests that keep waiters' places.
type beating struct {
	*hooked
	beats, claims atomic.Int64
}

func (b *beating) Heartbeat(ctx context.Context, claims []backend.Claim) ([]error, error) {
	b.beats.Add(1)
	b.claims.Add(int64(len(claims)))
	return b.Backend.Heartbeat(ctx, claims)
}

// Waiters that need a hold each share their heartbeats, keep their order, and all get the lock.
// covers: W5
func TestWaitersShareHeartbeats(t *testing.T) {
	for name, opts := range map[string][]locker.Option{
		"shared": {locker.Shared()}, "permits": {locker.Permit(2)}, "re-entrant": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := &beating{hooked: hook()}
			synctest.Test(t, func(t *testing.T) {
				l := start(t, b, locker.Config{TTL: time.Hour})
				other := start(t, membackendOf(b), locker.Config{TTL: time.Hour})
				block, err := other.Lock(t.Context(), "k", blocking(opts)...)
				if err != nil {
					t.Fatal(err)
				}
				const n = 2000 // beyond what two requests a second keep alive each second
				var all sync.WaitGroup
				for i := range n {
					opts := opts
					if opts == nil {
						opts = []locker.Option{locker.Reentrant(fmt.Sprint("owner", i))}
					}
					all.Go(func() {
						g, err := l.Lock(t.Context(), "k", opts...)
						if err != nil {
							t.Error(err)
							return
						}
						_ = g.Unlock()
					})
				}
				synctest.Wait()
				b.acquires.Store(0)
				time.Sleep(100 * time.Second)
				beats, asked := b.beats.Load(), b.acquires.Load()
				if beats < 80 || beats > 260 || asked > 2*n {
					t.Errorf("%d heartbeats and %d attempts in 100s for %d waiters; want one or "+
						"two heartbeats a second", beats, asked, n)
				}
				_ = block.Unlock()
				all.Wait()
				_ = l.Close()
				_ = other.Close()
			})
		})
	}
}

// blocking are options that exclude those of opts.
func blocking(opts []locker.Option) []locker.Option {
	_ = opts
	return nil
}

// membackendOf is the store of b without its hooks.
func membackendOf(b *beating) backend.Backend { return b.Backend }

// After the last Unlock of a client nothing of it is in the store, whatever its goroutines did
// before.
// covers: W7, W13, G5
func TestNothingIsLeftAfterTheLastUnlock(t *testing.T) {
	for seed := range uint64(30) {
		b := membackend.New()
		bubble(t, b, locker.Config{TTL: time.Second, Wait: waiting.Config{Passes: int(seed%4) - 1}},
			func(t *testing.T, l *locker.Client[struct{}]) {
				var all sync.WaitGroup
				for i := range uint64(12) {
					rng := rand.New(rand.NewPCG(seed, i))
					all.Go(func() {
						for range 10 {
							time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
							ctx, cancel := context.WithTimeout(t.Context(),
								time.Duration(rng.IntN(4000))*time.Microsecond)
							g, err := l.Lock(ctx, "k")
							if err == nil {
								time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
								err = g.Unlock()
							}
							if err != nil && !errors.Is(err, context.DeadlineExceeded) {
								t.Error(err)
							}
							cancel()
						}
					})
				}
				all.Wait()
				state, err := b.Inspect(t.Context(), "k")
				if err != nil || len(state.Holders)+len(state.Waiters) > 0 {
					t.Errorf("seed %d: %d holders, %d waiters are left, %v", seed,
						len(state.Holders), len(state.Waiters), err)
				}
			})
	}
}

// Where the store has no queue, whoever knows that others want the key does not win against those
// whom its own release wakes. Who does not know, as nobody was ever in its way, finds out.
func TestTurnsWithoutAQueue(t *testing.T) {
	for name, met := range map[string]bool{
		"both were refused":   true,
		"the first never was": false,
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { turns(t, met) }) })
	}
}

func turns(t *testing.T, met bool) {
	b := plain()
	both := [2]*locker.Client[struct{}]{start(t, b, locker.Config{}), start(t, b, locker.Config{})}
	for i, l := range both {
		g := mustLock(t, both[1-i], "k")
		if met { // each finds the other in the way
			_, err := l.TryLock(t.Context(), "k")
			wantErr(t, err, backend.ErrHeld)
		}
		_ = g.Unlock()
	}
	var held [2]int
	var all sync.WaitGroup
	for i, l := range both {
		time.Sleep(50 * time.Millisecond) // long enough to forget that it had the key just now
		all.Go(func() {
			for began := time.Now(); time.Since(began) < 10*time.Second; held[i]++ {
				g := mustLock(t, l, "k")
				time.Sleep(2 * time.Millisecond)
				if err := g.Unlock(); err != nil {
					t.Error(err)
				}
			}
			_ = l.Close()
		})
	}
	all.Wait()
	if least, most := min(held[0], held[1]), max(held[0], held[1]); 2*most > 3*least ||
		least < 100 {
		t.Errorf("held %v times, want alike", held)
	}
}

// Who takes a key again and again is slowed down for a moment now and then where the store has no
// queue, and never where it has one. Other keys, and a key that is taken less often, cost nothing.
func TestStandingBackIsRare(t *testing.T) {
	for name, c := range map[string]struct {
		b        backend.Backend
		keys     int
		pause    time.Duration
		min, max time.Duration // how long a thousand pairs take beside the pauses
	}{
		"with a queue": {hook(), 1, 0, 0, 0},
		"one key, no pause": {
			plain(), 1, time.Millisecond, 2 * time.Millisecond,
			25 * time.Millisecond,
		},
		"one key, less often":   {plain(), 1, 10 * time.Millisecond, 0, 0},
		"one key after another": {plain(), 1000, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, c.b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
				began := time.Now()
				for i := range 1000 {
					_ = mustLock(t, l, fmt.Sprint("k", i%c.keys)).Unlock()
					time.Sleep(c.pause)
				}
				if took := time.Since(began) - 1000*c.pause; took < c.min || took > c.max {
					t.Errorf("a thousand pairs took %v more than their pauses, want %v to %v", took,
						c.min, c.max)
				}
			})
		})
	}
}

// An Unlock says nil for a hold that Close has ended only until the hold's deadline, while Close
// waits for it and afterwards: from then on another may have held the lock.
// covers: C10
func TestUnlockAfterCloseAndTheDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration // Close begins; the deadline is after 6s
		lost  bool
	}{
		"while Close waits, in time":     {4 * time.Second, false},
		"while Close waits, too late":    {9 * time.Second, true},
		"after Close, and much too late": {time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := hook()
				b.renew = func(context.Context, backend.Claim) error { return errSilence }
				l := start(t, b, locker.Config{
					TTL:    6 * time.Second,
					Logger: slog.New(slog.DiscardHandler),
				})
				g := mustLock(t, l, "k")
				closed := make(chan error, 1)
				go func() { closed <- l.Close() }()
				time.Sleep(test.after)
				err := g.Unlock()
				if test.lost {
					wantErr(t, err, locker.ErrLost)
				} else if err != nil {
					t.Errorf("Unlock in time = %v", err)
				}
				<-closed //nolint:errcheck // what Close says of it is tested elsewhere
				synctest.Wait()
			})
		})
	}
}

// The bound holds however often a store that stays silent is asked: what was in flight does not
// come back into a list that has filled up meanwhile. Beyond the bound the oldest are left to their
// leases.
// covers: X10
func TestOwedReleasesAreBoundedWhileTheyAreRetried(t *testing.T) {
	const bound, times = 1 << 12, 3
	b := plain()
	var answers atomic.Bool
	var mu sync.Mutex
	var freed []string
	b.acquire = func(context.Context, backend.Claim) (backend.Grant, error) {
		return backend.Grant{}, errSilence
	}
	b.release = func(ctx context.Context, c backend.Claim) error {
		if !answers.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		mu.Lock()
		defer mu.Unlock()
		freed = append(freed, c.Key)
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		l := start(t, b, locker.Config{TTL: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		for i := range times * bound {
			if _, err := l.TryLock(t.Context(), fmt.Sprint(i)); !errors.Is(err, errSilence) {
				t.Fatal(err)
			}
			// A request is given up now and then, and goes back into the list.
			time.Sleep(20 * time.Millisecond)
		}
		answers.Store(true)
		if err := l.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if len(freed) < bound-1 || len(freed) > bound+1 { // one was in flight
			t.Errorf("%d releases were owed of %d, want %d", len(freed), times*bound, bound)
		}
		if !slices.Contains(freed, fmt.Sprint(times*bound-1)) {
			t.Error("the last was left to its lease, and not the oldest")
		}
	})
}
