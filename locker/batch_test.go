package locker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// several is a store that takes many keys in one request, as some do.
type several struct {
	*hooked
	// a key that is free, but of which such a request knows too little
	odd      string
	answer   func(verb string) error // what a request comes to that was executed; nil is the answer
	lost     func(verb string) bool  // whether it does not arrive
	sent     func(c []backend.Claim) // is told of each attempt for many
	requests atomic.Int64
}

func (s *several) do(verb string) (executed bool, err error) {
	s.requests.Add(1)
	if s.lost != nil && s.lost(verb) {
		return false, errSilence
	}
	if s.answer != nil {
		err = s.answer(verb)
	}
	return true, err
}

func (s *several) TryAcquireAll(ctx context.Context,
	claims []backend.Claim,
) (grants []backend.Grant, err error) {
	if s.sent != nil {
		s.sent(claims)
	}
	executed, err := s.do("acquire")
	for i, c := range claims {
		if !executed || c.Key == s.odd {
			break
		}
		c.MinToken = uint64(time.Now().UnixMicro()) + uint64(100*i)   // each has another
		g, err := s.Backend.TryAcquire(context.WithoutCancel(ctx), c) // as a server does
		if err != nil {
			break
		}
		grants = append(grants, g)
	}
	if err != nil {
		return nil, err
	}
	return grants, nil
}

func (s *several) TryReleaseAll(ctx context.Context, claims []backend.Claim) ([]bool, error) {
	executed, err := s.do("release")
	released := make([]bool, len(claims))
	for i, c := range claims {
		if state, _ := s.Inspect(ctx, c.Key); executed && c.Key != s.odd &&
			len(state.Waiters) == 0 {
			_, err := s.Backend.Release(ctx, c)
			released[i] = err == nil
		}
	}
	if err != nil {
		return nil, err
	}
	return released, nil
}

func many() *several { return &several{hooked: hook()} }

// asked are how many requests of each kind there were.
func (s *several) asked(t *testing.T, what string, requests, acquires, releases int64) {
	t.Helper()
	if r, a, u := s.requests.Swap(0), s.acquires.Swap(0), s.releases.Swap(0); r != requests ||
		a != acquires || u != releases {
		t.Errorf("%s: %d requests for many keys, %d attempts and %d releases of one, want "+
			"%d, %d and %d", what, r, a, u, requests, acquires, releases)
	}
}

// Free keys are locked by one request and unlocked by another, 64 in each, where the store can; and
// each has its own token.
func TestAllIsOneRequest(t *testing.T) {
	b := many()
	b.sent = func(claims []backend.Claim) {
		if !slices.IsSortedFunc(claims, func(a, b backend.Claim) int {
			return strings.Compare(a.Key, b.Key)
		}) {
			t.Error("the claims are not in the order of keys")
		}
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		for _, n := range []int{2, 10, 64, 200} {
			all, err := locker.All(t.Context(), l, keysOf(n))
			if err != nil {
				t.Fatal(err)
			}
			requests := int64(n+63) / 64
			b.asked(t, fmt.Sprint("All of ", n), requests, 0, 0)
			for _, key := range all.Keys() {
				state, err := b.Inspect(t.Context(), key)
				if err != nil || len(state.Holders) != 1 ||
					all.Guard(key).Hold().Token != state.Holders[0].Token {
					t.Fatalf("%s: %+v, %v; its guard has token %d", key, state, err,
						all.Guard(key).Hold().Token)
				}
			}
			wantErr(t, all.Unlock(), nil)
			b.asked(t, fmt.Sprint("Unlock of ", n), requests, 0, 0)
			for _, key := range all.Keys() {
				wantHeld(t, b, key, false)
			}
		}
		all, err := locker.All(t.Context(), l, []string{"one"})
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, all.Unlock(), nil)
		b.asked(t, "one key", 0, 1, 1)
		all, err = locker.All(t.Context(), l, keysOf(3), locker.Shared())
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, all.Unlock(), nil)
		b.asked(t, "readers", 1, 3, 0)
	})
}

// The first that is not free ends it, whoever holds it: nothing behind it is asked for before it is
// had, so nothing of it is to be given back, and what is before it is held.
//
// covers: G9
func TestAllEndsAtWhatIsHeld(t *testing.T) {
	for who, ours := range map[string]bool{"another": false, "this process": true} {
		t.Run(who, func(t *testing.T) {
			b := many()
			bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
				other, err := locker.New(b, locker.Bare, locker.Config{})
				if err != nil {
					t.Fatal(err)
				}
				by := other
				if ours {
					by = l
				}
				holder := mustLock(t, by, "k002")
				b.asked(t, who, 0, 1, 0)
				got := make(chan *locker.Guards[struct{}])
				go func() {
					all, err := locker.All(t.Context(), l, keysOf(5))
					if err != nil {
						t.Error(err)
					}
					got <- all
				}()
				synctest.Wait()
				for i, key := range keysOf(5) {
					wantHeld(t, b, key, i <= 2)
				}
				// All's own, and then those of a Lock.
				if n, freed := b.acquires.Load(), b.releases.Load(); n > 3 || freed != 0 {
					t.Errorf("%d attempts of one key, %d releases", n, freed)
				}
				wantErr(t, holder.Unlock(), nil)
				all := <-got
				wantErr(t, all.Unlock(), nil)
				for _, key := range keysOf(5) {
					wantHeld(t, b, key, false)
				}
				_ = other.Shutdown(t.Context())
			})
		})
	}
}

// A key that the request for many does not take, and that is free all the same, costs two more
// requests at a time: one for it, and one each for those behind it at once.
func TestAllAsksForTheRest(t *testing.T) {
	b := many()
	b.odd = "k001"
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		all, err := locker.All(t.Context(), l, keysOf(4))
		if err != nil {
			t.Fatal(err)
		}
		b.asked(t, "All", 1, 3, 0)
		wantErr(t, all.Unlock(), nil)
		b.asked(t, "Unlock", 1, 0, 1)
		for _, key := range keysOf(4) {
			wantHeld(t, b, key, false)
		}
	})
}

// Without an answer nobody knows what the request did. So each key is asked for again by a new
// claim, when the old one is withdrawn; and each is released again, until the store has said so.
//
// covers: A2, A4
func TestAllWithoutAnAnswer(t *testing.T) {
	for name, lost := range map[string]bool{"executed": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			b := many()
			first := map[string]bool{}
			fails := func(verb string) bool {
				again := first[verb]
				first[verb] = true
				return !again
			}
			if lost {
				b.lost = fails
			} else {
				b.answer = func(verb string) error {
					if fails(verb) {
						return errSilence
					}
					return nil
				}
			}
			bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
				all, err := locker.All(t.Context(), l, keysOf(5))
				if err != nil {
					t.Fatal(err)
				}
				b.asked(t, "All", 1, 5, 5)
				if _, err := all.Values(); err != nil {
					t.Error(err)
				}
				wantErr(t, all.Unlock(), nil)
				b.asked(t, "Unlock", 1, 0, 5)
				for _, key := range keysOf(5) {
					wantHeld(t, b, key, false)
				}
			})
		})
	}
}

// A caller that goes while the request is under way leaves nothing, whether it was granted or is
// refused later.
//
// covers: A2
func TestAllIsCancelledInItsRequest(t *testing.T) {
	b := many()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		ctx, cancel := context.WithCancel(t.Context())
		b.answer = func(string) error { cancel(); return nil }
		_, err := locker.All(ctx, l, keysOf(5))
		wantErr(t, err, context.Canceled, locker.ErrNotAcquired)
		synctest.Wait()
		for _, key := range keysOf(5) {
			wantHeld(t, b, key, false)
		}
	})
}

// A router is a Locker that has a Client for each key, on a store of its own.
type router struct {
	of map[string]*locker.Client[struct{}]
}

func (r router) Lock(ctx context.Context, key string,
	opts ...locker.Option,
) (*locker.Guard[struct{}], error) {
	return r.of[key].Lock(ctx, key, opts...)
}

func (r router) TryLock(ctx context.Context, key string,
	opts ...locker.Option,
) (*locker.Guard[struct{}], error) {
	return r.of[key].TryLock(ctx, key, opts...)
}

// Keys of several stores are released at their own.
func TestAllUnlocksAtEachStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stores := router{map[string]*locker.Client[struct{}]{}}, map[string]*several{}
		shared := many()
		for _, key := range keysOf(4) {
			b := many()
			if key > "k001" {
				b = shared
			}
			l, err := locker.New(b, locker.Bare, locker.Config{})
			if err != nil {
				t.Fatal(err)
			}
			r.of[key], stores[key] = l, b
		}
		all, err := locker.All(t.Context(), r, keysOf(4))
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, all.Unlock(), nil)
		for key, b := range stores {
			wantHeld(t, b, key, false)
			if n := b.requests.Load(); n != 0 {
				t.Errorf("%d requests for many keys at the store of %s, which has one "+
					"each of a Client", n, key)
			}
			wantErr(t, r.of[key].Shutdown(t.Context()), nil)
		}
	})
}

// A hold that was lost is no reason for the others to be: its Unlock says so, and theirs do not.
//
// covers: C1
func TestAllUnlocksWhatIsLost(t *testing.T) {
	b := many()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		all, err := locker.All(t.Context(), l, keysOf(4))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.ForceRelease(t.Context(), "k002",
			all.Guard("k002").Hold().Token); err != nil {
			t.Fatal(err)
		}
		err = all.Unlock()
		var failed *locker.Error
		if !errors.As(err, &failed) || failed.Key != "k002" || !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock = %v", err)
		}
		for _, key := range []string{"k000", "k001", "k003"} {
			wantErr(t, all.Guard(key).Unlock(), nil)
			wantHeld(t, b, key, false)
		}
	})
}

// Claims whose release is to leave more than a free key are released by themselves: a tombstone,
// where an attempt had no answer.
//
// covers: A4
func TestAllLeavesTombstones(t *testing.T) {
	b := many()
	unsure := false
	var tombs atomic.Int64
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		g, err := b.Backend.TryAcquire(ctx, c)
		if c.Key == "k001" && err == nil && !unsure {
			unsure = true
			return backend.Grant{}, errSilence
		}
		return g, err
	}
	b.release = func(ctx context.Context, c backend.Claim) error {
		if !c.NoneInFlight {
			tombs.Add(1)
		}
		_, err := b.Backend.Release(ctx, c)
		return err
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		held := mustLock(t, l, "k001")
		wantErr(t, held.Unlock(), nil)
		if tombs.Swap(0) == 0 {
			t.Fatal("a Lock whose attempt had no answer leaves no tombstone")
		}
		unsure = false
		other, err := locker.New(b, locker.Bare, locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		holder := mustLock(t, other, "k000")
		got := make(chan *locker.Guards[struct{}])
		go func() {
			all, err := locker.All(t.Context(), l, keysOf(3)) // k001 in its turn
			if err != nil {
				t.Error(err)
			}
			got <- all
		}()
		time.Sleep(time.Second)
		wantErr(t, holder.Unlock(), nil)
		wantErr(t, (<-got).Unlock(), nil)
		if n := tombs.Load(); n != 1 {
			t.Errorf("%d releases with a tombstone", n)
		}
		for _, key := range keysOf(3) {
			wantHeld(t, b, key, false)
		}
		_ = other.Shutdown(t.Context())
	})
}

// Two who unlock the same keys at once wait for each other's requests, and not for each other.
func TestAllIsUnlockedTwiceAtOnce(t *testing.T) {
	b := many()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		for range 50 {
			all, err := locker.All(t.Context(), l, keysOf(40))
			if err != nil {
				t.Fatal(err)
			}
			var both sync.WaitGroup
			for range 4 {
				both.Go(func() { wantErr(t, all.Unlock(), nil) })
			}
			both.Wait()
			for _, key := range all.Keys() {
				wantHeld(t, b, key, false)
			}
		}
	})
}
