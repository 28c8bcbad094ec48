package etcdbackend

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/backend"
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

// One cluster is one, through each member and whatever the keys look like, and also after a restart. Nothing is to be seen of that
// among the keys.
//
// covers: Q3
func TestIdentity(t *testing.T) {
	t.Run("three", func(t *testing.T) { oneIdentity(t, testserver.EtcdCluster(t, 3)) })
	if !testing.Short() {
		t.Run("debian", func(t *testing.T) { oneIdentity(t, testserver.EtcdCluster(t, 1, testserver.WithDebianEtcd())) })
	}
}

func oneIdentity(t *testing.T, set *testserver.EtcdSet) {
	first := identity(t, on(t, client(t, set.Addrs()...), Config{}))
	for _, m := range set.Members {
		c := client(t, m.Addr())
		for _, cfg := range []Config{{}, {Prefix: "else/"}, {Layout: Etcdctl}} {
			if id := identity(t, on(t, c, cfg)); id != first {
				t.Errorf("%s with %+v: %q, not %q", m.Addr(), cfg, id, first)
			}
		}
	}
	c := client(t, set.Addrs()...)
	all, err := c.Get(t.Context(), "", prefixOnly...)
	want(t, "Get", err, nil)
	if all.Count != 0 {
		t.Errorf("%d keys were written", all.Count)
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
		if err == nil && id != first {
			t.Errorf("after a restart: %q, not %q", id, first)
		}
		return err
	})
}

// Servers that were started with the same flags have the same cluster id, and are two.
//
// covers: Q3
func TestIdentityOfSameFlags(t *testing.T) {
	var ids []string
	var clusters []uint64
	for range 2 {
		srv := testserver.Etcd(t, testserver.WithArgs(
			"--initial-advertise-peer-urls", "http://localhost:2380", "--initial-cluster", "m0=http://localhost:2380",
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

// Whoever is the first, all have the same answer. All of them have looked before any of them writes.
func TestIdentityRace(t *testing.T) {
	const clients = 4
	srv := testserver.Etcd(t)
	var looked, done sync.WaitGroup
	looked.Add(clients)
	ids := make([]string, clients)
	for i := range clients {
		b := granting(t, srv.Addr(), sync.OnceFunc(func() { looked.Done(); looked.Wait() }))
		done.Go(func() { ids[i] = identity(t, b) })
	}
	done.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("different answers: %q", ids)
		}
	}
}

// granting returns a backend on a client that calls tap before it asks for a lease.
func granting(t *testing.T, addr string, tap func()) *Backend {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			if _, ok := req.(*etcdserverpb.LeaseGrantRequest); ok {
				tap()
			}
			return next(ctx, method, req, reply, cc, opts...)
		}),
	}})
	want(t, "client", err, nil)
	t.Cleanup(func() { _ = c.Close() })
	return on(t, c, Config{RequestTimeout: 2 * patience}) // and no second attempt
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

// Without a connection there is nobody to ask; it is no panic.
func TestIdentityWithoutConnection(t *testing.T) {
	b := on(t, clientv3.NewCtxClient(t.Context()), Config{})
	_, err := b.Identity(t.Context())
	want(t, "Identity", err, errors.ErrUnsupported)
}
