package redistest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Scripts is a client that asks nothing but scripts, as those of servers without SET … IFEQ do. It
// is for one goroutine. What is not a verb of one claim goes by b.
func Scripts(t testing.TB, srv *testserver.Server, b backend.Backend) backend.Backend {
	return scriptsOnly{b, srv, layout(t).For(backend.NewOwner())}
}

type scriptsOnly struct {
	backend.Backend
	srv *testserver.Server
	l   script.Layout
}

func (s scriptsOnly) run(r script.Request) (any, error) {
	return s.srv.Do(append([]string{"EVAL", r.Script.Source(), "1", r.Keys[0]}, r.Args...)...)
}

func (s scriptsOnly) TryAcquire(_ context.Context, c backend.Claim) (g backend.Grant, err error) {
	reply, err := s.run(s.l.Acquire(c))
	if err != nil {
		return g, err
	}
	return script.DecodeAcquire(reply, c)
}

func (s scriptsOnly) Renew(_ context.Context, c backend.Claim) error {
	reply, err := s.run(s.l.Renew(c))
	if err != nil {
		return err
	}
	return script.DecodeRenew(reply)
}

func (s scriptsOnly) Release(_ context.Context, c backend.Claim) (backend.Released, error) {
	reply, err := s.run(s.l.Release(c))
	if err != nil {
		return backend.Released{}, err
	}
	return script.DecodeRelease(reply)
}

// Native takes and frees a lock on a server that has SET … IFEQ, beside clients that use scripts
// only, watch, and queue.
//
// covers: K1, W1, A3
func Native(t *testing.T, scheme string) {
	srv := testserver.Redis(t)
	testserver.OnlyWhere(t, srv, func(v testserver.Version) bool {
		return v.Product == "redis" && v.AtLeast(8, 4) || v.Product == "valkey" && v.AtLeast(8, 1)
	}, "SET has no IFEQ")
	a, b := Closing(t, scheme+"://"+srv.Addr()), Closing(t, scheme+"://"+srv.Addr())
	old := Scripts(t, srv, b)
	k, last := storetest.Key(t), uint64(0)
	take := func(by backend.Backend) (c backend.Claim) {
		t.Helper()
		c = storetest.Claim(k)
		c.NoneInFlight = true
		g := storetest.Acquired(t, by, c)
		if g.Token <= last {
			t.Fatalf("token %d after %d", g.Token, last)
		}
		last = g.Token
		return c
	}
	for range 3 {
		storetest.Want(t, "release", storetest.Release(t.Context(), a, take(a)), nil)
	}
	before := scripts(srv)
	const pairs = 200
	for range pairs {
		storetest.Want(t, "release", storetest.Release(t.Context(), a, take(a)), nil)
	}
	if n := scripts(srv) - before; n > pairs/10 { // of a machine that pauses for long
		t.Errorf("%d scripts for %d pairs", n, pairs)
	}
	before = scripts(srv)
	// What answers on the next connection may be another server.
	srv.MustDo("CLIENT", "KILL", "TYPE", "normal")
	again := storetest.Claim(k)
	again.NoneInFlight = true
	storetest.Eventually(t, "acquire", func() error {
		_, err := a.TryAcquire(t.Context(), again)
		return err
	})
	storetest.Want(t, "release", storetest.Release(t.Context(), a, again), nil)
	if scripts(srv) == before {
		t.Error("no script has told the clock of the server behind a new connection")
	}
	for range pairs {
		by := []backend.Backend{a, b, old}[rand.IntN(3)]
		c := take(by)
		for i, other := range []backend.Backend{a, b, old} {
			d := storetest.Claim(k)
			if _, err := other.TryAcquire(t.Context(), d); err == nil {
				t.Fatalf(history.Broken+"client %d was granted what another holds", i)
			}
		}
		if rand.IntN(2) == 0 {
			storetest.Want(t, "renew", by.Renew(t.Context(), c), nil)
		}
		storetest.Want(t, "release", storetest.Release(t.Context(), by, c), nil)
		if s := inspect(t, b, k); len(s.Holders)+len(s.Waiters) > 0 {
			t.Fatalf("after a release: %+v", s)
		}
	}
	for i := range 100 { // until a tries natively again
		k = fmt.Sprint(storetest.Key(t), i%2)
		storetest.Want(t, "release", storetest.Release(t.Context(), a, take(a)), nil)
	}
	c := take(a)
	wake, err := b.Watch(t.Context(), c)
	storetest.Want(t, "watch", err, nil)
	storetest.Want(t, "a watcher's attempt", refused(t, b, storetest.Claim(k)), backend.ErrHeld)
	storetest.Want(t, "release", storetest.Release(t.Context(), a, c), nil)
	storetest.Woken(t, wake)

	c = take(a)
	next := storetest.Claim(k)
	next.Queue, next.WaiterTTL = true, next.TTL
	wake, err = b.Watch(t.Context(), next)
	storetest.Want(t, "watch", err, nil)
	storetest.Want(t, "to queue", refused(t, b, next), backend.ErrHeld)
	storetest.Want(t, "release", storetest.Release(t.Context(), a, c), nil)
	storetest.Woken(t, wake)
	if s := inspect(t, a, k); len(s.Holders) != 1 || s.Holders[0].Owner != next.Owner {
		t.Errorf("%+v, want the next in the queue to hold", s)
	}
	storetest.Want(t, "release", storetest.Release(t.Context(), b, next), nil)
}

func refused(t *testing.T, b backend.Backend, c backend.Claim) error {
	t.Helper()
	_, err := b.TryAcquire(t.Context(), c)
	return err
}
