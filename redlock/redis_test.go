package redlock_test

import (
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
	_ "github.com/holdfast-go/holdfast/redisbackend"
)

// redisURL names a quorum of servers.
func redisURL(servers []*testserver.Server, more ...string) string {
	return quorumURL("redis", servers, more...)
}

// quorumURL names them for one of the two clients.
func quorumURL(scheme string, servers []*testserver.Server, more ...string) string {
	var nodes []string
	for _, s := range servers {
		nodes = append(nodes, "node="+url.QueryEscape(strings.Replace(s.URL(), "redis", scheme, 1)))
	}
	return "redlock://?" + strings.Join(append(nodes, more...), "&")
}

// TestConformanceOnRedis runs the suite on three real servers, each client with connections of its
// own.
func TestConformanceOnRedis(t *testing.T) {
	testserver.OnlyInAll(t, "the same suite on three servers")
	t.Parallel()
	if testing.Short() {
		t.Skip("the suite on real servers")
	}
	servers := testserver.Redises(t, 3)
	var makers storetest.Makers
	backendtest.Run(t, backendtest.Harness{Open: func(t testing.TB) backend.Backend {
		// The machine may be busy.
		return makers.Route(dial(t, redisURL(servers, "node-timeout=3s")))
	}})
}

// covers: G6, B11
func TestOneOpenOnRedis(t *testing.T) {
	testserver.OnlyInAll(t, "processes that are killed")
	// The machine may be busy.
	backendtest.OneOpen(t, redisURL(testserver.Redises(t, 3), "node-timeout=3s"))
}

// A mixed quorum is as good as its weakest node.
func TestMixedNodes(t *testing.T) {
	server := testserver.Redis(t)
	var nodes []string
	for _, u := range []string{server.URL(), "mem://" + t.Name() + "1", "mem://" + t.Name() + "2"} {
		nodes = append(nodes, "node="+url.QueryEscape(u))
	}
	b := dial(t, "redlock://?"+strings.Join(nodes, "&"))
	defer b.Close()
	redis := dial(t, server.URL())
	defer redis.Close()
	if caps := redis.Capabilities(); b.Capabilities().Fencing != (caps.Fencing && caps.MinToken) {
		t.Errorf("Fencing = %v with a node of %+v", b.Capabilities().Fencing, caps)
	}
	cycle(t, b, 20)
}

// cycle takes and releases a key, so many times.
func cycle(t testing.TB, b backend.Backend, times int) {
	t.Helper()
	// A minority may be late with the last release of other pairs.
	key := fmt.Sprint(t.Name(), times)
	for range times {
		c := claim(key)
		if _, err := b.TryAcquire(t.Context(), c); err != nil {
			t.Fatalf("TryAcquire = %v", err)
		}
		if _, err := b.Release(t.Context(), c); err != nil {
			t.Fatalf("Release = %v", err)
		}
	}
}

// Five servers: one hangs, another is killed, and the lock goes on; a third, and it does not, and
// says so. The counts hold the costs of it: a node that is away is asked by probes alone, and no
// goroutines pile up.
//
// covers: Q14, E2, G1, G6
func TestRedisNodesFail(t *testing.T) {
	servers := testserver.Redises(t, 5)
	b := dial(t, redisURL(servers, "node-timeout=300ms"))
	defer b.Close()
	cycle(t, b, 50)

	servers[0].Stop()
	servers[1].Kill()
	l, err := locker.New(b, locker.Bare, locker.Config{TTL: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	g, err := l.Lock(t.Context(), "held")
	if err != nil {
		t.Fatalf("Lock with two of five nodes away = %v", err)
	}
	cycle(t, b, 200)
	if n := runtime.NumGoroutine(); n > 150 {
		t.Errorf("%d goroutines after 200 pairs with a node that hangs", n)
	}
	if err := g.Check(t.Context()); err != nil {
		t.Errorf("Check = %v", err)
	}
	if err := g.Unlock(); err != nil {
		t.Errorf("Unlock = %v", err)
	}

	servers[2].Kill()
	if _, err := b.TryAcquire(t.Context(), claim("k")); err == nil {
		t.Error("granted by two nodes of five")
	}
	servers[0].Cont()
	servers[1].Restart()
	servers[2].Restart()
	awaitGrant(t, b)
	if err := l.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// guardedURL names a quorum of servers with the guard on.
func guardedURL(servers []*testserver.Server, longest time.Duration) string {
	nodes := url.Values{}
	for _, s := range servers {
		nodes.Add("node", s.URL()+"?max_ttl="+longest.String())
	}
	return "redlock://?" + nodes.Encode() + "&node-timeout=300ms"
}

// awaitGrant asks until a majority grants: servers that were away are reconnected to.
func awaitGrant(t testing.TB, b backend.Backend) { awaitGrantOf(t, b, 0) }

func awaitGrantOf(t testing.TB, b backend.Backend, ttl time.Duration) {
	t.Helper()
	l, err := locker.New(b, locker.Bare, locker.Config{StoreTimeout: 30 * time.Second, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	g, err := l.Lock(t.Context(), "again")
	if err != nil {
		t.Fatalf("Lock with all nodes back = %v", err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	if err := l.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// A node that cannot be reached when the quorum is opened takes part when it can.
// covers: Q14
func TestOpenWithANodeAway(t *testing.T) {
	servers := testserver.Redises(t, 3)
	servers[0].Kill()
	b := dial(t, redisURL(servers))
	defer b.Close()
	cycle(t, b, 10)
	servers[0].Restart()
	servers[1].Kill()
	awaitGrant(t, b) // needs the one that was away
	servers[2].Kill()
	_, err := backend.Open(t.Context(), redisURL(servers))
	if !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("Open with two of three nodes away = %v, want ErrUnavailable", err)
	}
}

// One server under two names is one server, wherever its backend can tell.
// covers: Q3
func TestRedisListedTwice(t *testing.T) {
	server := testserver.Redis(t)
	other := testserver.Redis(t)
	twice := strings.Replace(server.URL(), "127.0.0.1", "localhost", 1)
	q, err := backend.Open(t.Context(), redisURL([]*testserver.Server{server, other})+"&node="+
		url.QueryEscape(twice))
	if err == nil {
		_ = q.Close()
	}
	if !errors.Is(err, backend.ErrUnsafe) {
		t.Errorf("Open with a server listed twice = %v, want ErrUnsafe", err)
	}
}

// One client reaches the nodes by redis://, another by rueidis://. A node is restarted, which one
// of them may notice and the other not: they go on excluding each other, and nobody is refused for
// another list of nodes.
//
// covers: I2, R3
func TestRedisNodesByTwoClients(t *testing.T) {
	servers := testserver.Redises(t, 3)
	one, other := dial(t, quorumURL("redis", servers)), dial(t, quorumURL("rueidis", servers))
	defer func() { _, _ = one.Close(), other.Close() }()
	awaitGrant(t, one)
	awaitGrant(t, other)
	for _, restarted := range servers {
		restarted.Restart()
		for i := range 20 {
			by, next := one, other
			if i%2 == 1 {
				by, next = other, one
			}
			held := claim("k")
			if doubts, err := acquire(t, by, held); err != nil {
				t.Fatalf("pair %d: TryAcquire = %v after %d doubts", i, err, doubts)
			}
			if doubts, err := acquire(t, next, claim("k")); !errors.Is(err, backend.ErrHeld) {
				t.Fatalf("pair %d: TryAcquire of what is held = %v after %d doubts", i, err, doubts)
			}
			if _, err := by.Release(t.Context(), held); err != nil {
				t.Fatalf("pair %d: Release = %v", i, err)
			}
		}
	}
}
