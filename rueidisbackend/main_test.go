package rueidisbackend

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testserver.StopAfter(m),
		// rueidis closes the connections of nodes that left a cluster five seconds later, also after Close.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
	)
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

func watched(ctx context.Context, t testing.TB, b *Backend, c backend.Claim) <-chan backend.Wake {
	t.Helper()
	wake, err := b.Watch(ctx, c)
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	return wake
}
