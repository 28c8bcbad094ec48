package redisbackend

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testserver.StopAfter(m))
}

// What both Redis backends' tests say.
var (
	key        = redistest.Key
	claim      = redistest.Claim
	acquired   = redistest.Acquired
	want       = redistest.Want
	eventually = redistest.Eventually
	woken      = redistest.Woken
	quick      = redistest.Quick
)

const patience = redistest.Patience

// open opens a backend for the length of the test.
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

// client is a client as a program would have it: with go-redis' defaults, and so with retries and without heed to contexts.
func client(t testing.TB, addr string, change func(*redis.Options)) *redis.Client {
	t.Helper()
	o := &redis.Options{Addr: addr}
	if change != nil {
		change(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// on returns a backend on a program's client.
func on(t testing.TB, c redis.UniversalClient, cfg Config) *Backend {
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
