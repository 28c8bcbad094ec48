// Package storetest is what the tests of backends on real servers have in common.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Patience is for what must come; only a failing test waits so long.
const Patience = 20 * time.Second

var keys atomic.Int64

// Key is a lock name that no other test has.
func Key(t testing.TB) string {
	return fmt.Sprintf("%s.%d", t.Name(), keys.Add(1))
}

// Claim is a fresh claim on key.
func Claim(key string) backend.Claim {
	return backend.Claim{
		Key: key, Owner: backend.NewOwner(), TTL: 30 * time.Second,
		Meta: backend.Meta{Service: "test"},
	}
}

// Acquired is a TryAcquire that must succeed.
func Acquired(t testing.TB, b backend.Backend, c backend.Claim) backend.Grant {
	t.Helper()
	g, err := b.TryAcquire(t.Context(), c)
	if err != nil {
		t.Fatalf("TryAcquire: %v", err)
	}
	return g
}

// Release is b.Release, for a test that is about the answer alone.
func Release(
	ctx context.Context, b interface {
		Release(ctx context.Context, c backend.Claim) (backend.Released, error)
	}, c backend.Claim,
) error {
	_, err := b.Release(ctx, c)
	return err
}

// Want fails the test unless err is target; nil is nil.
func Want(t testing.TB, what string, err, target error) {
	t.Helper()
	if target == nil && err != nil || target != nil && !errors.Is(err, target) {
		t.Fatalf("%s: %v, want %v", what, err, target)
	}
}

// Eventually polls until ready returns nil.
func Eventually(t testing.TB, what string, ready func() error) {
	t.Helper()
	deadline := time.Now().Add(3 * Patience)
	for {
		err := ready()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// WokenUnlessLost waits for a signal, which the nodes of a cluster may lose between them: they send
// messages to each other once, whether a connection lasts or not. So a test makes several rounds,
// and one of them must be woken.
func WokenUnlessLost(t testing.TB, wake <-chan backend.Wake, cluster bool) (woken bool) {
	t.Helper()
	if !cluster {
		Woken(t, wake)
		return true
	}
	select {
	case <-wake:
		return true
	case <-time.After(Patience / 4):
		t.Log("a message was lost between the nodes of the cluster")
		return false
	}
}

// Woken waits for a signal.
func Woken(t testing.TB, wake <-chan backend.Wake) {
	t.Helper()
	select {
	case _, ok := <-wake:
		if !ok {
			t.Fatal("the watch was closed")
		}
	case <-time.After(Patience):
		t.Fatal("not woken")
	}
}

// Quick is a context that ends soon enough for a request that is never answered.
func Quick(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Opened opens a backend, which is a B, for the length of the test. On a busy machine a store may
// give no answer in time, and is asked again.
func Opened[B backend.Backend](t testing.TB, url string) B {
	t.Helper()
	b, err := backend.Open(t.Context(), url)
	for start := time.Now(); errors.Is(err, backend.ErrUnavailable) &&
		time.Since(start) < Patience; {
		b, err = backend.Open(t.Context(), url)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	typed, ok := b.(B)
	if !ok {
		t.Fatalf("%s opens a %T", url, b)
	}
	return typed
}

// Makers sends repeats of an attempt on a quorum to the client that made it, where they come from
// outside of tests: the majority of another client may include a node that has not been told the
// token that was agreed on yet, so that client would find a higher one. The zero value knows of no
// attempt; all clients of a test share one.
type Makers struct{ by sync.Map }

// Route returns a client that makes its attempts by b, and repeats of another's by that one.
func (m *Makers) Route(b backend.Backend) backend.Backend { return &routed{b, m} }

type routed struct {
	backend.Backend
	makers *Makers
}

func (r *routed) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if maker, ok := r.makers.by.LoadOrStore(c.Key+c.ID(), r.Backend); ok && ctx.Err() == nil {
		if m, ok := maker.(backend.Backend); ok {
			if g, err := m.TryAcquire(ctx, c); !errors.Is(err, backend.ErrClosed) {
				return g, err
			}
		}
	}
	return r.Backend.TryAcquire(ctx, c)
}
