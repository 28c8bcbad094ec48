package locker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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

// remote is a store each request to which takes a round trip, or until its ctx ends.
func remote(rtt time.Duration) *hooked {
	b := hook()
	half := func(ctx context.Context) error {
		select {
		case <-time.After(rtt / 2):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		if err := half(ctx); err != nil {
			return backend.Grant{}, err
		}
		g, err := b.Backend.TryAcquire(context.WithoutCancel(ctx), c)
		if late := half(ctx); late != nil {
			return backend.Grant{}, late
		}
		return g, err
	}
	b.release = func(ctx context.Context, c backend.Claim) error {
		if err := half(ctx); err != nil {
			return err
		}
		err := storetest.Release(context.WithoutCancel(ctx), b.Backend, c)
		return cmp.Or(half(ctx), err)
	}
	return b
}

func keysOf(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("k%03d", i))
	}
	return keys
}

// Free keys are locked in the time of one request, and unlocked in that of another, in whichever
// way they are locked. Of very many keys so many are asked for at once.
func TestAllTakesARoundTrip(t *testing.T) {
	for name, opts := range map[string][]locker.Option{
		"exclusive": nil, "shared": {locker.Shared()}, "permit": {locker.Permit(2)},
		"re-entrant": {locker.Reentrant("me")},
	} {
		for n, trips := range map[int]int{1: 1, 2: 1, 64: 1, 200: 4} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				const rtt = 10 * time.Millisecond
				b := remote(rtt)
				bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
					began := time.Now()
					all, err := locker.All(t.Context(), l, keysOf(n), opts...)
					if err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took != time.Duration(trips)*rtt ||
						b.acquires.Load() != int64(n) {
						t.Errorf("locked in %v by %d requests", took, b.acquires.Load())
					}
					if values, err := all.Values(); err != nil || len(values) != n {
						t.Errorf("%d values, %v", len(values), err)
					}
					began = time.Now()
					if err := all.Unlock(); err != nil {
						t.Error(err)
					}
					if took := time.Since(began); took > time.Duration(trips)*rtt ||
						b.releases.Load() != int64(n) {
						t.Errorf("unlocked in %v by %d requests", took, b.releases.Load())
					}
				})
			})
		}
	}
}

// While All waits for a key it holds those before it, and nothing behind it: neither a lock nor a
// place in a queue.
//
// covers: G9
func TestAllGivesBackWhatIsBehind(t *testing.T) {
	for name, opts := range map[string][]locker.Option{
		"exclusive":  nil,
		"re-entrant": {locker.Reentrant("me")},
	} {
		t.Run(name, func(t *testing.T) {
			b := remote(10 * time.Millisecond)
			bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
				other, err := locker.New(b, locker.Bare, locker.Config{})
				if err != nil {
					t.Fatal(err)
				}
				holders := []*locker.Guard[struct{}]{
					mustLock(t, other, "b"),
					mustLock(t, other, "d"), mustLock(t, l, "f"),
				}
				got := make(chan *locker.Guards[struct{}])
				go func() {
					all, err := locker.All(t.Context(), l, []string{"f", "e", "d", "c", "b", "a"},
						append(opts, locker.WaitLimit(time.Minute))...)
					if err != nil {
						t.Error(err)
					}
					got <- all
				}()
				time.Sleep(time.Second)
				for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
					state, err := b.Inspect(t.Context(), key)
					if err != nil {
						t.Fatal(err)
					}
					held, waiters := map[string]bool{
						"a": true, "b": true, "d": true,
						"f": true,
					}[key], map[string]int{"b": 1}[key]
					if (len(state.Holders) > 0) != held || len(state.Waiters) != waiters {
						t.Errorf("%s: %d hold, %d wait", key, len(state.Holders),
							len(state.Waiters))
					}
				}
				if n := b.releases.Load(); n != 2 { // of c and e
					t.Errorf("%d requests were made to give keys back", n)
				}
				for _, g := range holders {
					if err := g.Unlock(); err != nil {
						t.Error(err)
					}
				}
				all := <-got
				wantErr(t, all.Unlock(), nil)
				for _, key := range all.Keys() {
					wantHeld(t, b, key, false)
				}
				_ = other.Shutdown(t.Context())
			})
		})
	}
}

// Nothing is left of keys that were asked for at once, and in vain: as the store did not answer for
// one, the caller went, a Binder failed, or the client was closed.
//
// covers: W7
func TestAllLeavesNothing(t *testing.T) {
	keys := []string{"a", "b", "c", "d"}
	errBind := errors.New("said by test")
	for name, c := range map[string]struct {
		during func(l *locker.Client[int], cancel func())
		silent bool
		panics string // the key whose Binder does
		is     error
	}{
		"panic":      {panics: "b", is: errBind},
		"late panic": {panics: "d", is: errBind},
		"no answer":  {silent: true}, // once, to one that was granted
		"cancelled": {during: func(_ *locker.Client[int], cancel func()) {
			time.Sleep(15 * time.Millisecond)
			cancel()
		}, is: context.Canceled},
		"cancelled late": {during: func(_ *locker.Client[int], cancel func()) {
			time.Sleep(25 * time.Millisecond)
			cancel()
		}, is: context.Canceled},
		"closed": {during: func(l *locker.Client[int], _ func()) {
			time.Sleep(5 * time.Millisecond)
			_ = l.Shutdown(context.Background())
		}, is: locker.ErrClosed},
		"bind": {is: errBind},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := remote(20 * time.Millisecond)
				if acquire := b.acquire; c.silent {
					var lost atomic.Bool
					b.acquire = func(ctx context.Context,
						claim backend.Claim,
					) (backend.Grant, error) {
						g, err := acquire(ctx, claim)
						if claim.Key == "b" && lost.CompareAndSwap(false, true) {
							return backend.Grant{}, errSilence
						}
						return g, err
					}
				}
				l, err := locker.New(b, func(ctx context.Context, h locker.Hold) (int, error) {
					if h.Key == c.panics {
						panic("said by test")
					}
					if h.Key == "c" && c.panics == "" && errors.Is(c.is, errBind) {
						return 0, errBind
					}
					if c.is != nil && c.is != errBind { //nolint:errorlint // that one
						<-ctx.Done() // until the caller has gone, or Close
						return 0, ctx.Err()
					}
					return int(h.Key[0] - 'a'), nil
				}, locker.Config{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.during != nil {
					go c.during(l, cancel)
				}
				var all *locker.Guards[int]
				func() {
					defer func() {
						if recover() != nil {
							err = errBind
						}
					}()
					all, err = locker.All(ctx, l, keys)
				}()
				if wantErr(t, err, c.is); c.is == nil {
					if values, err := all.Values(); err != nil ||
						!slices.Equal(values, []int{0, 1, 2, 3}) {
						t.Errorf("%v, %v", values, err)
					}
					wantErr(t, all.Unlock(), nil)
				}
				if err := l.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
				for _, key := range keys {
					wantHeld(t, b, key, false)
				}
			})
		})
	}
}

// Who wants a key that All has got at once waits for it as for any other: another process in the
// store's queue, and this one, too, as soon as All has given it back.
func TestAllHasWaiters(t *testing.T) {
	b := remote(10 * time.Millisecond)
	bubble(t, b, locker.Config{Wait: waiting.Config{Passes: -1}},
		func(t *testing.T, l *locker.Client[struct{}]) {
			other, err := locker.New(b, locker.Bare, locker.Config{})
			if err != nil {
				t.Fatal(err)
			}
			all, err := locker.All(t.Context(), l, []string{"a", "b"})
			if err != nil {
				t.Fatal(err)
			}
			var waiters sync.WaitGroup
			for _, l := range []*locker.Client[struct{}]{l, other} {
				waiters.Go(func() {
					g, err := l.Lock(t.Context(), "b")
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Second)
					wantErr(t, g.Unlock(), nil)
				})
			}
			for _, who := range []string{"other", "this process"} {
				time.Sleep(500 * time.Millisecond)
				if state, err := b.Inspect(t.Context(), "b"); err != nil ||
					len(state.Holders) != 1 || len(state.Waiters) != 1 {
					t.Errorf("the %s is not in the queue: %+v, %v", who, state, err)
				}
				if who == "other" {
					wantErr(t, all.Unlock(), nil)
				}
			}
			waiters.Wait()
			_ = other.Shutdown(t.Context())
		})
}

// An observer is told of each lock once, from the request to the end of the hold, and its claim
// names that; and of one that was held, or given back, as of a TryLock before it.
func TestAllTellsTheObserver(t *testing.T) {
	b, r := remote(10*time.Millisecond), &record{}
	bubble(t, b, locker.Config{Observer: r}, func(t *testing.T, l *locker.Client[struct{}]) {
		other, err := locker.New(b, locker.Bare, locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		g := mustLock(t, other, "b")
		time.AfterFunc(time.Second, func() { _ = g.Unlock() })
		all, err := locker.All(t.Context(), l, []string{"a", "b", "c"})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range all.Keys() {
			state, err := b.Inspect(t.Context(), key)
			if err != nil || len(state.Holders) != 1 ||
				state.Holders[0].Meta.Traceparent != "00-trace-span-01" {
				t.Errorf("%s: %+v, %v", key, state, err)
			}
		}
		wantErr(t, all.Unlock(), nil)
		counts := map[string]int{}
		for _, line := range r.seen {
			if op, _, _ := strings.Cut(line, " "); op == locker.OpLock || op == locker.OpRelease {
				counts[line]++
			}
		}
		want := map[string]int{
			"lock a token:true err:false": 1, "release a token:true err:false": 1,
			"lock b token:false err:true": 1,
			"lock b token:true err:false": 1, "release b token:true err:false": 1,
			"lock c token:true err:false": 2, "release c token:true err:false": 2,
		}
		if !maps.Equal(counts, want) {
			t.Errorf("observed %v, want %v", counts, want)
		}
		_ = other.Shutdown(t.Context())
	})
}

// A limit bounds all attempts together, also where the store answers each of very many within it.
func TestAllWithinItsLimit(t *testing.T) {
	b := remote(600 * time.Millisecond)
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		began := time.Now()
		_, err := locker.All(t.Context(), l, keysOf(200), locker.WaitLimit(time.Second))
		wantErr(t, err, locker.ErrNotAcquired, context.DeadlineExceeded)
		// With what is withdrawn and given back.
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Minute)
		for _, key := range keysOf(200) {
			wantHeld(t, b, key, false)
		}
	})
}

// That the holder before has died is not forgotten by giving a key back.
func TestAllTellsWhoDied(t *testing.T) {
	b := remote(10 * time.Millisecond)
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g, err := b.TryAcquire(t.Context(),
			backend.Claim{Key: "b", Owner: backend.NewOwner(), TTL: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		other, err := locker.New(b, locker.Bare, locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		first := mustLock(t, other, "a")
		time.AfterFunc(time.Second, func() { _ = first.Unlock() })
		all, err := locker.All(t.Context(), l, []string{"a", "b", "c"})
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]uint64{"a": 0, "b": g.Token, "c": 0} {
			if got := all.Guard(key).Hold().TookOver; got != want {
				t.Errorf("%s took over %d, want %d", key, got, want)
			}
		}
		wantErr(t, all.Unlock(), nil)
		_ = other.Shutdown(t.Context())
	})
}

// forgetful is a Locker that grants nothing.
type forgetful struct{ locker.Locker[struct{}] }

func (forgetful) Lock(context.Context, string, ...locker.Option) (*locker.Guard[struct{}], error) {
	return nil, nil //nolint:nilnil // as a careless fake
}

// Guards of which one was never held are unlocked as such a one is.
func TestAllOfNothing(t *testing.T) {
	all, err := locker.All(t.Context(), forgetful{}, []string{"a", "b"})
	wantErr(t, err, nil)
	wantErr(t, all.Unlock(), locker.ErrUnlocked)
}

// overridden is a Locker with a Lock of its own.
type overridden struct {
	*locker.Client[struct{}]
	asked []string
}

func (o *overridden) Lock(ctx context.Context, key string,
	opts ...locker.Option,
) (*locker.Guard[struct{}], error) {
	o.asked = append(o.asked, key)
	return o.Client.Lock(ctx, key, opts...)
}

// Another Locker is asked for each key by its own Lock.
func TestAllAsksTheLocker(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		o := &overridden{Client: l}
		all, err := locker.All(t.Context(), o, []string{"b", "c", "a"})
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, all.Unlock(), nil)
		if !slices.Equal(o.asked, []string{"a", "b", "c"}) {
			t.Errorf("asked for %v", o.asked)
		}
	})
}

// A Lock of any of the keys, under the context of them all, is told that it would wait for itself.
func TestAllIsUnderEachOfItsKeys(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		all, err := locker.All(t.Context(), l, []string{"a", "b", "c"})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range all.Keys() {
			_, err := l.Lock(all.Context(), key)
			wantErr(t, err, locker.ErrWouldDeadlock)
		}
		_, err = locker.All(all.Context(), l, []string{"0", "b"})
		wantErr(t, err, locker.ErrWouldDeadlock)
		if h, ok := locker.HoldFrom(all.Context()); !ok || h.Key != "c" {
			t.Errorf("%v, %v", h, ok)
		}
		wantErr(t, all.Unlock(), nil)
	})
}

// All of the locks are there, and the caller gives up while the Binder of the last is at work,
// which does not look at its context: All fails, and of none of the keys anything is left.
//
// covers: W6
func TestAllGivesBackWhatWasLockedWhenItsCallerGaveUp(t *testing.T) {
	keys := []string{"a", "b", "c"}
	for _, last := range keys[1:] {
		t.Run(last, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membackend.New()
				ctx, cancel := context.WithCancel(t.Context())
				l, err := locker.New(b, func(_ context.Context, h locker.Hold) (string, error) {
					if h.Key == last {
						cancel()
					}
					return h.Key, nil
				}, locker.Config{})
				if err != nil {
					t.Fatal(err)
				}
				_, err = locker.All(ctx, l, keys)
				wantErr(t, err, locker.ErrNotAcquired, context.Canceled)
				synctest.Wait()
				for _, key := range keys {
					wantHeld(t, b, key, false)
				}
				wantErr(t, l.Shutdown(t.Context()), nil)
			})
		})
	}
}

// What a Binder has opened is closed one after the other, last first.
func TestAllClosesLastFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed []string
		l, err := locker.New(membackend.New(),
			locker.Scoped(func(_ context.Context, h locker.Hold) (string, error) {
				return h.Key, nil
			},
				func(key string) error {
					time.Sleep(time.Second)
					closed = append(closed, key)
					return nil
				}), locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		all, err := locker.All(t.Context(), l, []string{"a", "b", "c"})
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, all.Unlock(), nil)
		if !slices.Equal(closed, []string{"c", "b", "a"}) {
			t.Errorf("closed %v", closed)
		}
		_ = l.Shutdown(t.Context())
	})
}

// Ten workers of two processes want five of many keys each: nobody waits for ever, and they get on
// no slower than if they took one key after the other.
//
// covers: G9
func TestAllOfOverlappingKeys(t *testing.T) {
	for _, n := range []int{20, 50, 200} {
		early, earlyMost := overlapping(t, n, true)
		inTurn, inTurnMost := overlapping(t, n, false)
		t.Logf("five of %d: at once %v, at most %v for one; in turn %v, at most %v", n, early,
			earlyMost, inTurn, inTurnMost)
		if early > inTurn*5/4 || earlyMost > 4*inTurnMost {
			t.Error("that is worse")
		}
	}
}

func overlapping(t *testing.T, n int, early bool) (took, longest time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		b := remote(time.Millisecond)
		var clients []*locker.Client[struct{}]
		for range 2 {
			l, err := locker.New(b, locker.Bare, locker.Config{})
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, l)
		}
		keys, began := keysOf(n), time.Now()
		var all sync.WaitGroup
		waits := make([]time.Duration, 10)
		for i := range waits {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			var l locker.Locker[struct{}] = clients[i%2]
			if !early {
				l = &overridden{Client: clients[i%2]}
			}
			all.Go(func() {
				for range 40 {
					var mine []string
					for _, k := range random.Perm(n)[:5] {
						mine = append(mine, keys[k])
					}
					asked := time.Now()
					got, err := locker.All(t.Context(), l, mine)
					if err != nil {
						t.Error(err)
						return
					}
					waits[i] = max(waits[i], time.Since(asked))
					time.Sleep(time.Millisecond)
					wantErr(t, got.Unlock(), nil)
				}
			})
		}
		all.Wait()
		took, longest = time.Since(began), slices.Max(waits)
		for _, l := range clients {
			if err := l.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	return took, longest
}
