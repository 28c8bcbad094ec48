package etcdbackend

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func identity(t *testing.T, b *Backend) string {
	t.Helper()
	id, err := b.Identity(t.Context())
	want(t, "Identity", err, nil)
	if id == "" {
		t.Error("the identity is empty")
	}
	return id
}

// One cluster is one, through each member, and also after a restart. Locks below another prefix
// are other locks, and the cluster has another identity there. One key is all that there is of it,
// and in no lock's range.
//
// covers: Q3
func TestIdentity(t *testing.T) {
	t.Parallel()
	t.Run("three", func(t *testing.T) { oneIdentity(t, testserver.EtcdCluster(t, 3)) })
	t.Run("debian", func(t *testing.T) {
		again(t)
		oneIdentity(t, testserver.EtcdCluster(t, 1, testserver.WithDebianEtcd()))
	})
}

func oneIdentity(t *testing.T, set *testserver.EtcdSet) {
	configs := []Config{{}, {Prefix: "else/"}, {Layout: Etcdctl}}
	c := client(t, set.Addrs()...)
	var first []string
	for _, cfg := range configs {
		first = append(first, identity(t, on(t, c, cfg)))
	}
	for _, m := range set.Members {
		one := client(t, m.Addr())
		for i, cfg := range configs {
			if id := identity(t, on(t, one, cfg)); id != first[i] {
				t.Errorf("%s with %+v: %q, not %q", m.Addr(), cfg, id, first[i])
			}
		}
	}
	all, err := c.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	want(t, "Get", err, nil)
	var keys []string
	for _, kv := range all.Kvs {
		keys = append(keys, string(kv.Key))
	}
	if written := []string{
		"else/identity", "holdfast-side/identity",
		"holdfast/identity",
	}; !slices.Equal(keys, written) {
		t.Errorf("the keys %q were written, want %q", keys, written)
	}
	for _, m := range set.Members {
		m.Kill()
	}
	for _, m := range set.Members {
		m.Start()
	}
	b := on(t, c, Config{})
	eventually(t, "an answer after a restart", func() error {
		id, err := b.Identity(t.Context())
		if err == nil && id != first[0] {
			t.Errorf("after a restart: %q, not %q", id, first[0])
		}
		return err
	})
	free := claim("identity")
	free.NoneInFlight = true
	acquired(t, b, free)
	want(t, "release", storetest.Release(t.Context(), b, free), nil)
}

// Servers that were started with the same flags have the same cluster id, and are two.
//
// covers: Q3
func TestIdentityOfSameFlags(t *testing.T) {
	var ids []string
	var clusters []uint64
	for range 2 {
		srv := testserver.Etcd(t, testserver.WithArgs(
			"--initial-advertise-peer-urls", "http://localhost:2380", "--initial-cluster",
			"m0=http://localhost:2380",
		))
		c := client(t, srv.Addr())
		ids = append(ids, identity(t, on(t, c, Config{})))
		reply, err := c.Get(t.Context(), "any", clientv3.WithCountOnly())
		want(t, "Get", err, nil)
		clusters = append(clusters, reply.Header.ClusterId)
	}
	if clusters[0] != clusters[1] {
		t.Fatalf("the flags are not the same: clusters %v", clusters)
	}
	if ids[0] == ids[1] {
		t.Errorf("both are %q", ids[0])
	}
}

// Whoever is the first, all have the same answer.
func TestIdentityRace(t *testing.T) {
	const clients = 8
	srv := testserver.Etcd(t)
	var ready, done sync.WaitGroup
	ready.Add(clients)
	ids := make([]string, clients)
	for i := range clients {
		// All send at once.
		b, _ := tapped(t, srv.Addr(), func(*etcdserverpb.TxnRequest) { ready.Done(); ready.Wait() })
		done.Go(func() {
			id, err := b.Identity(context.Background())
			if err != nil {
				t.Errorf("Identity = %v", err)
			}
			ids[i] = id
		})
	}
	done.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("different answers: %q", ids)
		}
	}
}

// Identity ends as the verbs do, and does not take silence for an answer.
//
// covers: A2
func TestIdentityEnds(t *testing.T) {
	srv := testserver.Etcd(t)
	b := on(t, client(t, srv.Addr()), Config{RequestTimeout: 300 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Identity(ctx)
	want(t, "Identity with an ended ctx", err, context.Canceled)
	srv.Stop()
	start := time.Now()
	_, err = b.Identity(t.Context())
	if d := time.Since(start); backend.AnswerOf(err) != backend.Unknown || d > patience/2 {
		t.Errorf("Identity of a server that is silent = %v, after %v", err, d)
	}
	srv.Cont()
	want(t, "Close", b.Close(), nil)
	_, err = b.Identity(t.Context())
	want(t, "Identity after Close", err, backend.ErrClosed)
}
