package etcdbackend

import (
	"context"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// harness is the suite's way to a cluster. Its first member is restarted.
func harness(t *testing.T, set *testserver.EtcdSet) backendtest.Harness {
	c := client(t, set.Addrs()...)
	s := scheme{prefix: defaultPrefix}
	return backendtest.Harness{
		Open: func(t testing.TB) backend.Backend {
			// The machine may be busy.
			b, err := backend.Open(t.Context(), at(set.Addrs()...)+"?request_timeout=15s")
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Drop: func(t testing.TB, key string) {
			if _, err := c.Delete(t.Context(), s.prefix+escape(key)+"/",
				clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
		},
		PutForeign: func(t testing.TB, key string) func() bool {
			name := s.paths(key).queue + "settings"
			if _, err := c.Put(t.Context(), name, "of some web shop"); err != nil {
				t.Fatal(err)
			}
			return func() bool {
				reply, err := c.Get(context.Background(), name)
				return err == nil && len(reply.Kvs) == 1 &&
					string(reply.Kvs[0].Value) == "of some web shop"
			}
		},
		Leftovers: func(t testing.TB, prefix string) []string {
			return entries(t, c, s.prefix+escape(prefix))
		},
		Restart: func(testing.TB) { set.Members[0].Restart() },
	}
}

// entries lists the keys of those who hold or wait for locks whose keys begin with prefix.
func entries(t testing.TB, c *clientv3.Client, prefix string) (left []string) {
	t.Helper()
	reply, err := c.Get(context.Background(), prefix, clientv3.WithPrefix(),
		clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range reply.Kvs {
		parts := strings.Split(string(kv.Key), "/")
		if slices.Contains(parts, "q") && parts[len(parts)-1] != "settings" &&
			parts[len(parts)-1] != "token" {
			left = append(left, string(kv.Key))
		}
	}
	return left
}

// TestConformance runs the suite on one member, on three, and on the etcd that Debian has.
//
// covers: X9, X11, X13, D7
func TestConformance(t *testing.T) {
	// Each alone: several clusters on two processors do not answer in time.
	t.Run("three", func(t *testing.T) { again(t); conformance(t, 3) })
	t.Run("debian", func(t *testing.T) { again(t); conformance(t, 1, testserver.WithDebianEtcd()) })
	t.Parallel()
	t.Run("one", func(t *testing.T) { conformance(t, 1) })
}

func conformance(t *testing.T, members int, opts ...testserver.Option) {
	backendtest.Run(t, harness(t, testserver.EtcdCluster(t, members, opts...)))
}

// again leaves out what runs already on one member of the current etcd.
func again(t *testing.T) {
	t.Helper()
	testserver.OnlyInAll(t, "the same on another cluster")
	if testing.Short() {
		t.Skip("the same on another cluster")
	}
}
