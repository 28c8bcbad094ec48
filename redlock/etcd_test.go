package redlock_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	_ "github.com/holdfast-go/holdfast/etcdbackend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/redlock"
)

// etcds starts n servers that were configured alike: etcd gives them all the same cluster id.
func etcds(t *testing.T, n int) (addrs []string) {
	for range n {
		addrs = append(addrs, testserver.Etcd(t, testserver.WithArgs(
			"--initial-advertise-peer-urls", "http://localhost:2380", "--initial-cluster", "m0=http://localhost:2380",
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
func TestEtcdListedTwice(t *testing.T) {
	a := etcds(t, 3)
	b := dial(t, etcdURL(a...))
	defer b.Close()
	cycle(t, b, 3)

	spelled := strings.Replace(a[0], "127.0.0.1", "localhost", 1)
	q, err := backend.Open(t.Context(), etcdURL(a[0], a[1], spelled))
	if err == nil {
		_ = q.Close()
	}
	wantErr(t, "Open with a server listed twice, by another name", err, backend.ErrUnsafe)
	nodes := []backend.Backend{dial(t, "etcd://"+a[0]), dial(t, "etcd://"+spelled), dial(t, "etcd://"+a[1])}
	_, err = redlock.New(nodes, redlock.Config{})
	wantErr(t, "New with a server listed twice", err, backend.ErrUnsafe)
	for _, n := range nodes {
		_ = n.Close()
	}
}

// The members of one cluster are one node, and not three.
// covers: Q4
func TestEtcdMembersAsNodes(t *testing.T) {
	q, err := backend.Open(t.Context(), etcdURL(testserver.EtcdCluster(t, 3).Addrs()...))
	if err == nil {
		_ = q.Close()
	}
	wantErr(t, "Open with the members of one cluster", err, backend.ErrUnsafe)
}
