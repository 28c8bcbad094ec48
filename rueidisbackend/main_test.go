package rueidisbackend

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Before TestMain, and before anything is started: this process may be one that FlashSale started.
func init() { backendtest.Main() }

// covers: G6, B11
func TestFlashSale(t *testing.T) {
	testserver.OnlyInAll(t, "a sale with kills")
	backendtest.FlashSale(t, "rueidis"+strings.TrimPrefix(testserver.SharedRedis(t).URL(), "redis"))
}

// covers: G6, B11
func TestOneOpen(t *testing.T) {
	testserver.OnlyInAll(t, "processes that are killed")
	backendtest.OneOpen(t, "rueidis"+strings.TrimPrefix(testserver.SharedRedis(t).URL(), "redis"))
}

// covers: G6, B4
func TestRelay(t *testing.T) {
	backendtest.Relay(t, "rueidis"+strings.TrimPrefix(testserver.SharedRedis(t).URL(), "redis"))
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testserver.StopAfter(testserver.Around(m, func(t testing.TB) {
		t.Setenv("REDIS_ADDR", testserver.Redis(t).Addr()) // where the examples find it
	})),
		// rueidis closes the connections of nodes that left a cluster five seconds later, also
		// after Close.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		// And a look at the cluster that it has put off, by a second at most, is not called off.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
	)
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

func watched(ctx context.Context, t testing.TB, b *Backend, c backend.Claim) <-chan backend.Wake {
	t.Helper()
	wake, err := b.Watch(ctx, c)
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	return wake
}
