package etcdbackend

import (
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A claim that two clients make is queued once and holds once, and is over with one release.
func TestClaimOfTwoClients(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	one, two := on(t, c, Config{}), on(t, c, Config{})
	name := key(t)
	line := one.scheme.paths(name).queue
	entries := func(what string, want int64) {
		t.Helper()
		reply, err := c.Get(t.Context(), line+"x/", prefixOnly...)
		if err != nil || reply.Count != want {
			t.Fatalf("%s: %d entries, %v, want %d", what, reply.Count, err, want)
		}
	}
	holds, waits := inLine(name), inLine(name)
	holds.NoneInFlight, waits.NoneInFlight = true, true
	first := acquired(t, one, holds)
	if again := acquired(t, two, holds); again.Token != first.Token {
		t.Errorf("another client is granted token %d, want %d", again.Token, first.Token)
	}
	entries("held", 1)
	for _, b := range []*Backend{one, two, one} {
		_, err := b.TryAcquire(t.Context(), waits)
		var held *backend.HeldError
		if !errors.As(err, &held) || held.Position != 1 {
			t.Fatalf("TryAcquire in the queue = %v", err)
		}
		entries("in the queue", 2)
	}
	want(t, "release", storetest.Release(t.Context(), one, holds), nil)
	if g := acquired(t, one, waits); g.Token <= first.Token {
		t.Errorf("token %d after %d", g.Token, first.Token)
	}
	if g, g2 := acquired(t, one, waits), acquired(t, two, waits); g.Token != g2.Token {
		t.Errorf("tokens %d and %d of one claim", g.Token, g2.Token)
	}
	want(t, "release", storetest.Release(t.Context(), one, waits), nil)
	entries("released", 0)
}

// Whoever finds keys that are nobody's does not stand among them.
func TestNobodyStandsAmongForeignKeys(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b := on(t, c, Config{})
	name := key(t)
	line := b.scheme.paths(name).queue
	if _, err := c.Put(t.Context(), line+"settings", "of some web shop"); err != nil {
		t.Fatal(err)
	}
	_, err := b.TryAcquire(t.Context(), inLine(name))
	want(t, "TryAcquire", err, backend.ErrForeign)
	reply, err := c.Get(t.Context(), line, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(reply.Kvs) != 1 || string(reply.Kvs[0].Key) != line+"settings" {
		t.Errorf("left: %v, %v", reply, err)
	}
	if len(b.claims) > 0 {
		t.Errorf("%d claims are remembered", len(b.claims))
	}
}
