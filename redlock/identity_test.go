package redlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/redlock"
	"github.com/holdfast-go/holdfast/tracing"
)

// prefixed is a wrapper as package backend recommends to write one: it knows only of what it
// changes.
type prefixed struct{ backend.Backend }

func (p prefixed) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	c.Key = "prefix " + c.Key
	return p.Backend.TryAcquire(ctx, c)
}

// A wrapper must not hide that two nodes are one server.
// covers: Q3
func TestSameServerBehindWrappers(t *testing.T) {
	for name, wrap := range map[string]func(backend.Backend) backend.Backend{
		"prefixed": func(b backend.Backend) backend.Backend { return prefixed{b} },
		"traced": func(b backend.Backend) backend.Backend {
			return tracing.Wrap(b, tracing.Store{})
		},
		"over a network": func(b backend.Backend) backend.Backend {
			return backendtest.FaultyWith(b, 1, backendtest.Faults{})
		},
		"wrapped in both": func(b backend.Backend) backend.Backend {
			return tracing.Wrap(backendtest.Faulty(b, 1), tracing.Store{})
		},
	} {
		one, other := membackend.New(), membackend.New()
		nodes := []backend.Backend{wrap(one), wrap(other), wrap(one.Client())}
		if _, err := redlock.New(nodes, redlock.Config{}); !errors.Is(err, backend.ErrUnsafe) {
			t.Errorf("%s: New with one server twice = %v, want ErrUnsafe", name, err)
		}
		for _, n := range nodes {
			_ = n.Close()
		}
	}
	store := membackend.New()
	defer store.Close()
	_, err := redlock.New([]backend.Backend{prefixed{store}, prefixed{store}, prefixed{store}},
		redlock.Config{})
	wantErr(t, "New with one wrapped store three times", err, backend.ErrUnsafe)
}

// shy does not say who it is when it is asked for the first time.
type shy struct {
	backend.Backend
	asked    atomic.Bool
	acquires atomic.Int32
}

func (s *shy) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	s.acquires.Add(1)
	return s.Backend.TryAcquire(ctx, c)
}

func (s *shy) Identity(ctx context.Context) (string, error) {
	if s.asked.CompareAndSwap(false, true) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return s.Backend.Identity(ctx)
}

// joined is a quorum of nodes, which are closed with it when the test is over.
func joined(t *testing.T, nodes []backend.Backend) *redlock.Backend {
	t.Helper()
	q, err := redlock.New(nodes, redlock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = q.Close()
		for _, n := range nodes {
			_ = n.Close()
		}
	})
	return q
}

// A node that did not say who it is at first is asked again when it answers anything.
// covers: Q3
func TestSameServerSeenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := membackend.New(), membackend.New()
		again := &shy{Backend: one.Client()}
		q := joined(t, []backend.Backend{one, other, again})
		for range 2 { // at first one server counts twice
			c := claim("k")
			_, err := q.TryAcquire(t.Context(), c)
			synctest.Wait() // all that answer have
			if n := again.acquires.Load(); err != nil || n != 1 {
				t.Errorf("TryAcquire = %v, and the server was asked %d times under its second "+
					"name, want once", err, n)
			}
			if _, err := q.Release(t.Context(), c); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // in the bubble: until it has been asked who it is
		}
	})
}

// Nodes that did not say who they are yet are not taken for one another.
//
// covers: Q3, Q5
func TestServersThatAreSlowToSayWhoTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := []backend.Backend{
			membackend.New(), &shy{Backend: membackend.New()},
			&shy{Backend: membackend.New()},
		}
		q := joined(t, nodes)
		for range 2 { // the second time they have said it
			c := claim("k")
			_, err := q.TryAcquire(t.Context(), c)
			wantErr(t, "TryAcquire", err, nil)
			synctest.Wait()
			for i, n := range nodes {
				if state, err := n.Inspect(t.Context(), "k"); err != nil ||
					len(state.Holders) != 1 {
					t.Errorf("node %d: %+v, %v, want held", i, state, err)
				}
			}
			_, err = q.Release(t.Context(), c)
			wantErr(t, "Release", err, nil)
			time.Sleep(5 * time.Second)
		}
	})
}

// Of a server that was listed twice, one name counts, also when it has been away and says again who
// it is.
//
// covers: Q3, Q5
func TestSameServerComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, other := newPeer(membackend.Config{}), membackend.New()
		again := &shy{Backend: first.Client()}
		q := joined(t, []backend.Backend{first, other, again})
		lock := func() error {
			c := claim("k")
			_, err := q.TryAcquire(t.Context(), c)
			_, _ = q.Release(t.Context(), c)
			// In the bubble: until whoever is to say who it is has said so.
			time.Sleep(5 * time.Second)
			return err
		}
		// And the second name is found to be the same server.
		wantErr(t, "the first time", lock(), nil)
		first.set(func() { first.refuse = true })
		if lock() == nil {
			t.Fatal("granted by one server of two: the second name counts, and that shows nothing")
		}
		first.set(func() { first.refuse = false })
		_ = lock() // so that it has answered
		wantErr(t, "when the server is back", lock(), nil)
	})
}

// A node that must not be counted has nothing of a claim: a release comes to an answer without it,
// as one that never does would be repeated for as long as a lease may last, and Close would wait
// for it.
// covers: C4
func TestReleaseBesideABarredNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := membackend.New(), membackend.New()
		nodes := []backend.Backend{one, other, &shy{Backend: one.Client()}}
		q, err := redlock.New(nodes, redlock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = q.Close()
			for _, n := range nodes {
				_ = n.Close()
			}
		}()
		c := claim("k")
		if _, err := q.TryAcquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // until the third has said that it is the first
		c = claim("k")
		if _, err := q.TryAcquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c.NoneInFlight = false
		wantErr(t, "Release of what one of the two nodes has", storetest.Release(t.Context(), q, c),
			backend.ErrLost)
	})
}

// A namesake says at first that it is another server, as an address may for a while that is about
// to be changed.
type namesake struct {
	*membackend.Backend
	of       atomic.Pointer[membackend.Backend] // nil from when it says who it is
	asked    atomic.Bool                        // so that the quorum could be made
	acquires atomic.Int64
}

func (n *namesake) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	n.acquires.Add(1)
	return n.Backend.TryAcquire(ctx, c)
}

func (n *namesake) Identity(ctx context.Context) (string, error) {
	switch {
	case n.asked.CompareAndSwap(false, true):
		<-ctx.Done()
		return "", ctx.Err()
	case n.of.Load() != nil:
		return n.of.Load().Identity(ctx)
	}
	return n.Backend.Identity(ctx)
}

// A node that was the same server as another is a node again when it has become one of its own.
// covers: Q3
func TestSameServerUntilLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := membackend.New(), membackend.New()
		third := &namesake{Backend: membackend.New()}
		third.of.Store(one)
		nodes := []backend.Backend{one, other, third}
		q, err := redlock.New(nodes, redlock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = q.Close()
			for _, n := range nodes {
				_ = n.Close()
			}
		}()
		pair := func() (asked int64) {
			c, before := claim("k"), third.acquires.Load()
			_, err := q.TryAcquire(t.Context(), c)
			synctest.Wait()
			if err := errors.Join(err, storetest.Release(t.Context(), q, c)); err != nil {
				t.Errorf("a pair: %v", err)
			}
			return third.acquires.Load() - before
		}
		pair() // it answers, and so it is asked who it is
		time.Sleep(5 * time.Second)
		if n := pair(); n != 0 {
			t.Errorf("asked %d times while it is the same server as another", n)
		}
		third.of.Store(nil)
		time.Sleep(5 * time.Second)
		if n := pair(); n != 1 {
			t.Errorf("asked %d times when it is a server of its own, want once", n)
		}
	})
}

// A nameless node does not say who it is.
type nameless struct {
	backend.Backend
	why error
}

func (n nameless) Identity(context.Context) (string, error) { return "", n.why }

// A node that has no identity to tell, as a cluster has none, or to whose user it is not told,
// comes back like any other.
// covers: Q5
func TestNamelessNodeComesBack(t *testing.T) {
	for _, why := range []error{errors.ErrUnsupported, backend.ErrDenied} {
		t.Run(why.Error(), func(t *testing.T) { namelessNodeComesBack(t, why) })
	}
}

func namelessNodeComesBack(t *testing.T, why error) {
	synctest.Test(t, func(t *testing.T) {
		var peers []*peer
		var nodes []backend.Backend
		for range 3 {
			p := newPeer(membackend.Config{})
			peers = append(peers, p)
			nodes = append(nodes, nameless{p, why})
		}
		q, err := redlock.New(nodes, redlock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = q.Close()
			for _, n := range nodes {
				_ = n.Close()
			}
		}()
		pair := func() (held int) {
			c := claim("k")
			_, err := q.TryAcquire(t.Context(), c)
			held = (&quorum{T: t, peers: peers}).holders("k")
			if err := errors.Join(err, storetest.Release(t.Context(), q, c)); err != nil {
				t.Errorf("a pair: %v", err)
			}
			return held
		}
		peers[0].set(func() { peers[0].refuse = true })
		for range 5 {
			if n := pair(); n != 2 {
				t.Errorf("held on %d nodes without one of three", n)
			}
		}
		peers[0].set(func() { peers[0].refuse = false })
		time.Sleep(3 * time.Second) // in the bubble: longer than probes are apart
		if n := pair(); n != 3 {
			t.Errorf("held on %d nodes when it is back", n)
		}
	})
}
