package locker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// covers: I1, I2, I5, I9
func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	for name, try := range map[string]struct {
		key  string
		opts []locker.Option
		want error
	}{
		"empty key":    {"", nil, backend.ErrInvalid},
		"huge key":     {strings.Repeat("k", 10<<20), nil, backend.ErrInvalid},
		"not UTF-8":    {"\xff", nil, backend.ErrInvalid},
		"TTL 0":        {"k", []locker.Option{locker.TTL(0)}, backend.ErrInvalid},
		"TTL negative": {"k", []locker.Option{locker.TTL(-time.Second)}, backend.ErrInvalid},
		"TTL 1ns":      {"k", []locker.Option{locker.TTL(1)}, backend.ErrInvalid},
		"TTL max":      {"k", []locker.Option{locker.TTL(math.MaxInt64)}, backend.ErrInvalid},
		"no permits":   {"k", []locker.Option{locker.Permit(0)}, backend.ErrInvalid},
		"shared":       {"k", []locker.Option{locker.Shared()}, errors.ErrUnsupported},
		"permits":      {"k", []locker.Option{locker.Permit(3)}, errors.ErrUnsupported},
		"weights": {
			"k",
			[]locker.Option{locker.Permit(3), locker.Weight(2)},
			errors.ErrUnsupported,
		},
		"too heavy": {
			"k",
			[]locker.Option{locker.Permit(3), locker.Weight(4)},
			backend.ErrInvalid,
		},
		"negative weight": {
			"k",
			[]locker.Option{locker.Permit(3), locker.Weight(-1)},
			backend.ErrInvalid,
		},
		"weight alone": {"k", []locker.Option{locker.Weight(2)}, backend.ErrInvalid},
		"heavy reader": {
			"k",
			[]locker.Option{locker.Shared(), locker.Weight(2)},
			backend.ErrInvalid,
		},
		"reentrant":       {"k", []locker.Option{locker.Reentrant("me")}, errors.ErrUnsupported},
		"reentrant empty": {"k", []locker.Option{locker.Reentrant("")}, backend.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			b := plain()
			bubble(t, b, locker.Config{Namespace: "ns"},
				func(t *testing.T, l *locker.Client[struct{}]) {
					_, err := l.Lock(t.Context(), try.key, try.opts...)
					wantErr(t, err, locker.ErrNotAcquired, try.want)
					if n := b.acquires.Load() + b.releases.Load(); n != 0 {
						t.Errorf("%d requests were sent", n)
					}
					if len(err.Error()) > 400 {
						t.Errorf("the error has %d bytes", len(err.Error()))
					}
				})
		})
	}
}

// A backend that has permits and does not know weights, as one of another module may be, is asked
// for none: it would count each once.
func TestWeightIsRefusedByWhoDoesNotKnowIt(t *testing.T) {
	b := plain()
	b.caps.Permit = true
	b.acquire = func(context.Context, backend.Claim) (backend.Grant, error) {
		return backend.Grant{Token: 1}, nil
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		_, err := l.TryLock(t.Context(), "k", locker.Permit(3), locker.Weight(2))
		wantErr(t, err, locker.ErrNotAcquired, errors.ErrUnsupported)
		if !strings.Contains(err.Error(), "Weight") || b.acquires.Load() != 0 {
			t.Errorf("%v, after %d requests; want an error about Weight before any", err,
				b.acquires.Load())
		}
		for _, opts := range [][]locker.Option{
			{locker.Permit(3)},
			{locker.Permit(3), locker.Weight(1)},
		} {
			g, err := l.TryLock(t.Context(), "k", opts...)
			if err != nil {
				t.Fatalf("a light permit: %v", err)
			}
			_ = g.Unlock()
		}
	})
}

// A claim that waits in a queue waits with its weight, and its guard is like any other.
func TestWeightedLocks(t *testing.T) {
	b := membackend.New()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		light := mustLock(t, l, "k", locker.Permit(4))
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i, weight := range []int{4, 1, 3} {
			all.Go(func() {
				g, err := l.Lock(t.Context(), "k", locker.Permit(4), locker.Weight(weight))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, weight)
				mu.Unlock()
				time.Sleep(time.Duration(1+weight) * time.Minute)
				if err := g.Unlock(); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
			if state, err := l.Inspect(t.Context(), "k"); err != nil || len(state.Waiters) != i+1 ||
				state.Waiters[i].Weight != weight {
				t.Errorf("%+v, %v; want a claim of weight %d at the end", state.Waiters, err,
					weight)
			}
		}
		start := time.Now()
		if err := light.Unlock(); err != nil {
			t.Error(err)
		}
		all.Wait()
		if took := time.Since(start).Round(time.Second); took != 9*time.Minute {
			t.Errorf("it took %v, want the heavy one's 5 minutes, and 4 for the other two together",
				took)
		}
		if order[0] != 4 {
			t.Errorf("served in the order %v, want the heavy one first", order)
		}
	})
}

func TestBadConfigIsRefused(t *testing.T) {
	for name, cfg := range map[string]locker.Config{
		"TTL negative":     {TTL: -1},
		"TTL below MinTTL": {TTL: time.Microsecond},
		"TTL max":          {TTL: math.MaxInt64},
		"MaxHold":          {MaxHold: -1},
		"ReleaseTimeout":   {ReleaseTimeout: -1},
		"StoreTimeout":     {StoreTimeout: -1},
		"namespace":        {Namespace: strings.Repeat("n", 2000)},
		"wait mode":        {Wait: waiting.Config{Mode: "hope"}},
		"fallback":         {Wait: waiting.Config{Fallback: -1}},
		"max < initial":    {Wait: waiting.Config{Initial: 2, Max: 1}},
	} {
		if _, err := locker.New(membackend.New(), locker.Bare, cfg); !errors.Is(err,
			backend.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if _, err := locker.New[int](nil, nil, locker.Config{}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("nil backend: %v", err)
	}
	need := locker.Config{Require: backend.Capabilities{Shared: true, Fencing: true}}
	_, err := locker.New(plain(), locker.Bare, need)
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "Shared") ||
		strings.Contains(err.Error(), "Fencing") {
		t.Errorf("missing capability: %v", err)
	}
	_, err = locker.New(plain(), locker.Bare,
		locker.Config{Wait: waiting.Config{Mode: waiting.Handoff}})
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("hand-off without a queue: %v", err)
	}
}

// covers: R22
func TestNamespacesAreApart(t *testing.T) {
	b := membackend.New()
	names := []string{"", "a", "a~b", "~", "a%7Eb", "%"}
	seen := map[string]string{}
	for _, ns := range names {
		l, err := locker.New(b, locker.Bare, locker.Config{Namespace: ns})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range append(slices.Clone(names[1:]), "b~c", "a~a") {
			g, err := l.TryLock(t.Context(), key)
			if err != nil {
				t.Errorf("namespace %q, key %q meets %s: %v", ns, key,
					seen[backend.Namespaced(ns, key)], err)
				continue
			}
			seen[backend.Namespaced(ns, key)] = fmt.Sprintf("%q/%q", ns, key)
			t.Cleanup(func() { _ = g.Unlock() })
			if g.Hold().Key != key {
				t.Errorf("hold names %q, want the caller's %q", g.Hold().Key, key)
			}
		}
	}
}

func TestErrorsNameOperationAndKey(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "sku-1")
		defer g.Unlock()
		_, err := l.TryLock(t.Context(), "sku-1")
		var e *locker.Error
		if !errors.As(err, &e) || e.Op != "trylock" || e.Key != "sku-1" {
			t.Errorf("%#v", err)
		}
		if !strings.HasPrefix(err.Error(),
			`holdfast: trylock "sku-1": lock not acquired: held by another claim (`) {
			t.Error(err)
		}
	})
}

func TestNilGuard(t *testing.T) {
	var g *locker.Guard[int]
	_, err := g.Value()
	wantErr(t, err, locker.ErrUnlocked)
	wantErr(t, g.Unlock(), locker.ErrUnlocked)
	wantErr(t, g.Check(t.Context()), locker.ErrUnlocked)
	wantErr(t, context.Cause(g.Context()), locker.ErrUnlocked)
	if g.Hold() != (locker.Hold{}) || !g.Until().IsZero() || g.Lost() != nil {
		t.Error("a nil guard holds something")
	}
}

func TestTokensRise(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		var last uint64
		for range 100 {
			g := mustLock(t, l, "k")
			if g.Hold().Token <= last {
				t.Fatalf("token %d after %d", g.Hold().Token, last)
			}
			last = g.Hold().Token
			_ = g.Unlock()
		}
	})
}

func TestTTLOption(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{TTL: time.Hour}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k", locker.TTL(3*time.Second))
		time.Sleep(time.Minute) // an own TTL does not turn renewal off (Redisson's does)
		if n := b.renews.Load(); n < 50 {
			t.Errorf("%d renewals in a minute at a TTL of 3s", n)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// Any number of goroutines and clients: one at a time.
func TestMutualExclusion(t *testing.T) {
	b := membackend.New()
	counter, want := 0, 0 // unguarded: the race detector and the sum see an overlap
	var all sync.WaitGroup
	for range 4 {
		l, err := locker.New(b.Client(), locker.Bare, locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			want += 20
			all.Go(func() {
				for range 20 {
					if err := locker.Do(t.Context(), l, "k", func(context.Context, struct{}) error {
						counter++
						return nil
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	if counter != want {
		t.Errorf("counter %d, want %d", counter, want)
	}
}

// One call's MaxHold is that of its hold alone, also where a lease is handed on.
func TestMaxHoldOfOneCall(t *testing.T) {
	bubble(t, hook(), locker.Config{TTL: time.Minute, MaxHold: time.Hour},
		func(t *testing.T, l *locker.Client[struct{}]) {
			for _, held := range []struct {
				opts  []locker.Option
				limit time.Duration // 0 is none within a day
			}{
				{[]locker.Option{locker.MaxHold(time.Second)}, time.Second},
				{nil, time.Hour},
				{[]locker.Option{locker.MaxHold(0)}, 0},
			} {
				g := mustLock(t, l, "k", held.opts...)
				start := time.Now()
				select {
				case <-g.Context().Done():
				case <-time.After(24 * time.Hour):
				}
				took := time.Since(start).Round(time.Millisecond)
				switch err := g.Unlock(); {
				case held.limit == 0 && (err != nil || took != 24*time.Hour), held.limit > 0 &&
					took != held.limit:
					t.Errorf("with MaxHold %v the hold ended after %v: %v", held.limit, took, err)
				case held.limit > 0:
					wantErr(t, err, locker.ErrMaxHold)
				}
			}
		})
}
