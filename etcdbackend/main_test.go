package etcdbackend

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Before TestMain, and before anything is started: this process may be one that Processes started.
func init() { backendtest.Main() }

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testserver.Around(m, func(t testing.TB) {
		t.Setenv("ETCD_ADDR", testserver.Etcd(t).Addr()) // where the examples find it
	}))
}

// What the tests of all backends on servers say.
var (
	key        = storetest.Key
	claim      = storetest.Claim
	acquired   = storetest.Acquired
	want       = storetest.Want
	eventually = storetest.Eventually
	quick      = storetest.Quick
	opened     = storetest.Opened[*Backend]
)

const patience = storetest.Patience

// inLine is a fresh claim on key that is queued.
func inLine(key string) backend.Claim {
	c := claim(key)
	c.Queue, c.WaiterTTL = true, 30*time.Second
	return c
}

func at(addrs ...string) string { return "etcd://" + strings.Join(addrs, ",") }

// client is a client as a program would have it.
func client(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// on returns a backend on a program's client.
func on(t testing.TB, c *clientv3.Client, cfg Config) *Backend {
	t.Helper()
	b, err := New(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

var prefixOnly = []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCountOnly()}
