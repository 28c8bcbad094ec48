package locker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

func TestClassOf(t *testing.T) {
	for pattern, want := range map[string]string{
		"order-*": "order", "invoice/*": "invoice", "user:*:cart": "user", "leader": "leader",
		"flash-sale-?": "flash-sale",
		"sku_[0-9]*":   "sku", "shop/order-*": "shop/order", `a\*b`: "a", "größe~*": "größe",
		"a.-_:/|#=@~*": "a", "seat-*-": "seat",
		strings.Repeat("x", 64) + "*": strings.Repeat("x", 64),
	} {
		if got, err := locker.ClassOf(pattern); got != want || err != nil {
			t.Errorf("ClassOf(%q) = %q, %v, want %q", pattern, got, err, want)
		}
	}
	for pattern, reason := range map[string]string{
		"": "no text", "*": "no text", "?-order": "no text", "-*": "no text",
		"order-[": "no pattern", `order-\`: "no pattern",
		"order-[]a]": "no pattern", "a\xff-*": "not UTF-8", strings.Repeat("x", 65) +
			"*": "65 bytes, over 64",
	} {
		_, err := locker.ClassOf(pattern)
		_, newErr := locker.New(membackend.New(), locker.Bare,
			locker.Config{Classes: []string{"order-*", pattern}})
		for _, err := range []error{err, newErr} {
			var invalid *backend.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "Classes" ||
				invalid.Value != pattern || !strings.Contains(invalid.Reason, reason) {
				t.Errorf("%q: %v, want an error with %q", pattern, err, reason)
			}
		}
	}
}

// classes writes down the class of the holds that an observer is told of, by operation.
type classes struct {
	mu   sync.Mutex
	seen map[string][]string
}

func (c *classes) add(op string, h locker.Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.seen[op], h.Key+" "+h.Class) {
		c.seen[op] = append(c.seen[op], h.Key+" "+h.Class)
	}
}

func (c *classes) Begin(ctx context.Context, op string,
	h locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	c.add(op, h)
	return ctx, func(h locker.Hold, _ error) { c.add(op, h) }
}

// Every operation of a hold is of its class, at the beginning and at the end, also those that the
// process does for a cohort and behind the caller; and the guard says which.
func TestEveryOperationHasTheClass(t *testing.T) {
	seen := &classes{seen: map[string][]string{}}
	b := hook()
	var releases atomic.Int64
	b.release = func(ctx context.Context, c backend.Claim) error {
		if releases.Add(1)%2 == 1 { // it is made again
			return errSilence
		}
		return storetest.Release(ctx, b.Backend, c)
	}
	cfg := locker.Config{
		Observer: seen, Namespace: "ns",
		Classes: []string{"order-9*", "order-*", "job-[a-z]"}, TTL: 3 * time.Second,
	}
	patterns := cfg.Classes
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		patterns[1] = "*" // the Client has its own
		want := map[string]string{
			"order-17": "order", "order-17/line-1": "", "order-91": "order-9",
			"job-a": "job", "job-A": "", "order": "",
		}
		for key, class := range want {
			g := mustLock(t, l, key)
			if got := g.Hold().Class; got != class {
				t.Errorf("the class of %q is %q, want %q", key, got, class)
			}
			_ = g.Unlock()
		}
		clear(seen.seen)
		theirs := mustLock(t, another(t, b, locker.Config{Namespace: "ns"}), "order-17")
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				g := mustLock(t, l, "order-17")
				time.Sleep(2 * time.Second)
				_ = g.Unlock()
			})
		}
		time.Sleep(time.Second)
		_ = theirs.Unlock()
		wg.Wait()
		_ = mustLock(t, l, "order-17", locker.Shared()).Unlock()
		time.Sleep(time.Minute) // until what is released behind the callers is
		for _, op := range []string{
			locker.OpLock, locker.OpWait, locker.OpLease, locker.OpAttempt,
			locker.OpRenew, locker.OpRelease,
		} {
			if got := seen.seen[op]; !slices.Equal(got, []string{"order-17 order"}) {
				t.Errorf("%s is told of %q", op, got)
			}
		}
	})
}

// A class costs a free lock no allocation.
func TestClassesAllocateNothing(t *testing.T) {
	pair := func(classes ...string) float64 {
		l, err := locker.New(membackend.New(), locker.Bare, locker.Config{Classes: classes})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		return testing.AllocsPerRun(1000, func() {
			g, err := l.Lock(t.Context(), "order-17")
			if err != nil {
				t.Fatal(err)
			}
			_ = g.Unlock()
		})
	}
	if without, with := pair(), pair("invoice-*", "order-*"); with > without {
		t.Errorf("%v allocations with classes, %v without", with, without)
	}
}

// Who waits is told the name of the service that telemetry has, before that of the executable.
func TestServiceOfTheEnvironment(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "checkout")
	for service, want := range map[string]string{"": "checkout", "till": "till"} {
		b := membackend.New()
		l, err := locker.New(b, locker.Bare, locker.Config{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		g := mustLock(t, l, "k")
		state, err := b.Inspect(t.Context(), "k")
		if err != nil || state.Holders[0].Meta.Service != want {
			t.Errorf("%q: %+v, %v, want %q", service, state, err, want)
		}
		_, _ = g.Unlock(), l.Close()
	}
}
