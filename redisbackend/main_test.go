package redisbackend

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testserver.StopAfter(testserver.Around(m, func(t testing.TB) {
		t.Setenv("REDIS_ADDR", testserver.Redis(t).Addr()) // where the examples find it
	})))
}

// What the tests of all backends on servers say.
var (
	key        = storetest.Key
	claim      = storetest.Claim
	acquired   = storetest.Acquired
	want       = storetest.Want
	eventually = storetest.Eventually
	woken      = storetest.Woken
	quick      = storetest.Quick
	opened     = storetest.Opened[*Backend]
)

const patience = storetest.Patience

// client is a client as a program would have it: with go-redis' defaults, and so with retries and
// without heed to contexts.
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
