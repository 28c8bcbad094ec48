package etcdbackend

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	_ "github.com/holdfast-go/holdfast/backend/membackend" // mem://
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	_ "github.com/holdfast-go/holdfast/redisbackend" // redis://
	"github.com/holdfast-go/holdfast/redlock"
)

// These are the tests of a quorum with nodes in etcd: package redlock knows no store, and is of a
// module that does not need etcd's client.

func dial(t testing.TB, url string) backend.Backend {
	t.Helper()
	b, err := backend.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// etcds starts n servers that were configured alike: etcd gives them all the same cluster id.
func etcds(t *testing.T, n int) (addrs []string) {
	for range n {
		addrs = append(addrs, testserver.Etcd(t, testserver.WithArgs(
			"--initial-advertise-peer-urls", "http://localhost:2380", "--initial-cluster",
			"m0=http://localhost:2380",
		)).Addr())
	}
	return addrs
}

// etcdURL names a quorum of servers.
func etcdURL(addrs ...string) string {
	nodes := url.Values{}
	for _, a := range addrs {
		nodes.Add("node", "etcd://"+a)
	}
	return "redlock://?" + nodes.Encode()
}

// One etcd under two names is one; those that only look alike are several.
// covers: Q3
func TestQuorumListedTwice(t *testing.T) {
	a := etcds(t, 3)
	b := dial(t, etcdURL(a...))
	defer b.Close()
	for range 3 {
		c := claim(t.Name())
		acquired(t, b, c)
		if _, err := b.Release(t.Context(), c); err != nil {
			t.Fatalf("Release = %v", err)
		}
	}

	spelled := strings.Replace(a[0], "127.0.0.1", "localhost", 1)
	q, err := backend.Open(t.Context(), etcdURL(a[0], a[1], spelled))
	if err == nil {
		_ = q.Close()
	}
	want(t, "Open with a server listed twice, by another name", err, backend.ErrUnsafe)
	nodes := []backend.Backend{
		dial(t, "etcd://"+a[0]), dial(t, "etcd://"+spelled),
		dial(t, "etcd://"+a[1]),
	}
	_, err = redlock.New(nodes, redlock.Config{})
	want(t, "New with a server listed twice", err, backend.ErrUnsafe)
	for _, n := range nodes {
		_ = n.Close()
	}
}

// The members of one cluster are one node, and not three.
// covers: Q4
func TestQuorumOfMembers(t *testing.T) {
	q, err := backend.Open(t.Context(), etcdURL(testserver.EtcdCluster(t, 3).Addrs()...))
	if err == nil {
		_ = q.Close()
	}
	want(t, "Open with the members of one cluster", err, backend.ErrUnsafe)
}

// TestConformanceOnMixed runs the suite on a Redis and two etcds, each client with connections of
// its own.
func TestQuorumConformance(t *testing.T) {
	testserver.OnlyInAll(t, "the same suite on a Redis and two etcds")
	if testing.Short() {
		t.Skip("the suite on real servers")
	}
	// The machine may be busy.
	nodes := url.Values{"node": {testserver.Redis(t).URL()}, "node-timeout": {"5s"}}
	for _, addr := range etcds(t, 2) {
		nodes.Add("node", "etcd://"+addr)
	}
	var makers storetest.Makers
	backendtest.Run(t, backendtest.Harness{Brief: true, Open: func(t testing.TB) backend.Backend {
		return makers.Route(dial(t, "redlock://?"+nodes.Encode()))
	}})
}

// A voter is a node that can be away, and whose client's clock is behind.
type voter struct {
	backend.Backend
	wipe   func() // its memory
	away   atomic.Bool
	behind atomic.Int64 // microseconds
}

func (v *voter) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if v.away.Load() {
		return backend.Grant{}, backend.ErrUnavailable
	}
	c.MinToken -= uint64(v.behind.Load())
	return v.Backend.TryAcquire(ctx, c)
}

func (v *voter) Renew(ctx context.Context, c backend.Claim) error {
	if v.away.Load() {
		return backend.ErrUnavailable
	}
	return v.Backend.Renew(ctx, c)
}

// Tokens of a quorum of Redis and etcd rise from holder to holder, whichever majority answers and
// however far the holder's clock is behind the last one's, also when one node of that one's
// majority has lost all that it knew.
//
// covers: K3, K4, Q2
func TestQuorumTokensRise(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	key := t.Name()
	voters := []*voter{{Backend: dial(t, server.URL()), wipe: func() { server.MustDo("FLUSHALL") }}}
	for _, addr := range etcds(t, 2) {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{addr},
			Logger:    zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		b, err := New(client, Config{})
		if err != nil {
			t.Fatal(err)
		}
		voters = append(voters, &voter{Backend: b, wipe: func() {
			if _, err := client.Delete(t.Context(), "holdfast/"+key+"/",
				clientv3.WithPrefix()); err != nil {
				t.Error(err)
			}
		}})
	}
	var nodes []backend.Backend
	for _, v := range voters {
		t.Cleanup(func() { _ = v.Close() })
		nodes = append(nodes, v)
	}
	client := func() *redlock.Backend {
		b, err := redlock.New(nodes, redlock.Config{NodeTimeout: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Capabilities().Missing(backend.Capabilities{Fencing: true}); err != nil {
			t.Fatal(err)
		}
		return b
	}
	last, away := uint64(0), 0
	for i := range 60 {
		b := client() // knows of no node that it is away
		for _, v := range voters {
			v.behind.Store(int64(i%4) * time.Minute.Microseconds())
			v.away.Store(false)
		}
		voters[away].away.Store(true)
		c := claim(key)
		c.TTL = 30 * time.Second
		g, err := b.TryAcquire(t.Context(), c)
		if err != nil {
			t.Fatalf("hold %d without node %d: %v", i, away, err)
		}
		if g.Token <= last {
			t.Errorf("hold %d without node %d: token %d after %d", i, away, g.Token, last)
		}
		last = g.Token
		if i%3 == 1 {
			if err := b.Renew(t.Context(), c); err != nil {
				t.Errorf("Renew = %v", err)
			}
		}
		if _, err := b.Release(t.Context(), c); err != nil {
			t.Errorf("Release = %v", err)
		}
		if err := b.Close(); err != nil { // every node has been told
			t.Error(err)
		}
		if i%5 == 4 { // one that voted forgets, and the other one is asked next
			voters[(away+1)%3].wipe()
			continue
		}
		away = (away + 1 + i%2) % 3
	}
}

// Keys that are etcd's own recipe's have no counter beside them, so a quorum with such a node has
// no tokens, and says so to who requires them.
func TestQuorumOfEtcdctlHasNoTokens(t *testing.T) {
	nodes := url.Values{"node": {"mem://" + t.Name() + "1", "mem://" + t.Name() + "2"}}
	nodes.Add("node", "etcd://"+etcds(t, 1)[0]+"?layout=etcdctl")
	b := dial(t, "redlock://?"+nodes.Encode())
	defer b.Close()
	want(t, "tokens", b.Capabilities().Missing(backend.Capabilities{Fencing: true}),
		errors.ErrUnsupported)
}
