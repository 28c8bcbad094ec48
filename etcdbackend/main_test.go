package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
)

// Before TestMain, and before anything is started: this process may be one that Processes started.
func init() { backendtest.Main() }

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const patience = 20 * time.Second // for what must come; only a failing test waits so long

var keys atomic.Int64

// key is a lock name that no other test has.
func key(t testing.TB) string { return fmt.Sprintf("%s.%d", t.Name(), keys.Add(1)) }

// claim is a fresh claim on key.
func claim(key string) backend.Claim {
	return backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: 30 * time.Second, Meta: backend.Meta{Service: "test"}}
}

// inLine is a fresh claim on key that stands in line.
func inLine(key string) backend.Claim {
	c := claim(key)
	c.Queue, c.Linger = true, 30*time.Second
	return c
}

func at(addrs ...string) string { return "etcd://" + strings.Join(addrs, ",") }

// opened opens a backend for the length of the test.
func opened(t testing.TB, url string) *Backend {
	t.Helper()
	b, err := backend.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b.(*Backend)
}

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

func acquired(t testing.TB, b backend.Backend, c backend.Claim) backend.Grant {
	t.Helper()
	g, err := b.TryAcquire(t.Context(), c)
	if err != nil {
		t.Fatalf("TryAcquire: %v", err)
	}
	return g
}

// want fails the test unless err is target; nil is nil.
func want(t testing.TB, what string, err, target error) {
	t.Helper()
	if target == nil && err != nil || target != nil && !errors.Is(err, target) {
		t.Fatalf("%s: %v, want %v", what, err, target)
	}
}

// eventually polls until ready returns nil.
func eventually(t testing.TB, what string, ready func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ready()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// quick is a context that ends soon enough for a request that is never answered.
func quick(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

var prefixOnly = []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCountOnly()}
