package interop

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	_ "github.com/holdfast-go/holdfast/redisbackend"
	_ "github.com/holdfast-go/holdfast/redlock"
	_ "github.com/holdfast-go/holdfast/rueidisbackend"
)

// One server, each peer, through each of our clients.
func TestOneServer(t *testing.T) {
	srv := testserver.Redis(t)
	all := maps.Clone(single)
	maps.Copy(all, quorum)
	for _, scheme := range []string{"redis", "rueidis"} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			t.Run(scheme+"/"+name, func(t *testing.T) {
				exclude(t, open(t, node(scheme, srv)), all[name](t, srv), scheme+"/"+name)
			})
		}
	}
}

// A quorum of three, and of both clients of ours.
func TestQuorum(t *testing.T) {
	servers := []*testserver.Server{testserver.Redis(t), testserver.Redis(t), testserver.Redis(t)}
	nodes := url.Values{"node": {
		node("redis", servers[0]), node("rueidis", servers[1]),
		node("redis", servers[2]),
	}}
	for _, name := range slices.Sorted(maps.Keys(quorum)) {
		t.Run(name, func(t *testing.T) {
			exclude(t, open(t, "redlock://?"+nodes.Encode()), quorum[name](t, servers...),
				"quorum/"+name)
		})
	}
}

func node(scheme string, srv *testserver.Server) string {
	return scheme + "://" + srv.Addr() + "?dialect=string"
}

func open(t *testing.T, url string) backend.Backend {
	t.Helper()
	b, err := backend.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// exclude holds ours and a peer's lock against each other, both ways.
func exclude(t *testing.T, b backend.Backend, p peer, key string) {
	t.Helper()
	key = strings.ReplaceAll(key, " ", "-")
	if named, ok := p.(interface{ key(name string) string }); ok {
		key = named.key(key) // it has names of its own
	}
	claim := func() backend.Claim {
		return backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: ttl, NoneInFlight: true}
	}
	expect := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
	acquire := func(c backend.Claim) bool {
		t.Helper()
		_, err := b.TryAcquire(t.Context(), c)
		if err != nil && !errors.Is(err, backend.ErrHeld) {
			t.Fatal(err)
		}
		return err == nil
	}
	mine := claim()
	var last uint64
	for range 3 {
		expect("the peer locks a free key", p.lock(key), true)
		expect("we lock what the peer holds", acquire(mine), false)
		expect("we renew what the peer holds", b.Renew(t.Context(), mine) == nil, false)
		expect("we release what the peer holds", storetest.Release(t.Context(), b, mine) == nil,
			false)
		expect("the peer extends its lock", p.extend(key), true)
		expect("the peer unlocks", p.unlock(key), true)

		mine = claim()
		g, err := b.TryAcquire(t.Context(), mine)
		if err != nil || g.Token <= last {
			t.Fatalf("we lock a free key: token %d after %d, %v", g.Token, last, err)
		}
		last = g.Token
		expect("the peer locks what we hold", p.lock(key), false)
		expect("we renew", b.Renew(t.Context(), mine) == nil, true)
		expect("we release", storetest.Release(t.Context(), b, mine) == nil, true)
		mine = claim()
	}
	expect("the peer locks", p.lock(key), true)
	expect("the peer unlocks", p.unlock(key), true)
	expect("the peer unlocks again", p.unlock(key), false)
}
