package membackend_test

import (
	"net/url"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a client of the store that belongs to the test, opened as applications do.
func open(t testing.TB) backend.Backend {
	t.Helper()
	b, err := backend.Open(t.Context(), "mem://"+url.PathEscape(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// mem is open for what only this package may do to its store.
func mem(t testing.TB) *membackend.Backend {
	t.Helper()
	b, ok := open(t).(*membackend.Backend)
	if !ok {
		t.Fatal("mem:// opens something else")
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Harness{
		Open:      open,
		Bubble:    true,
		Drop:      func(t testing.TB, key string) { mem(t).Drop(key) },
		Leftovers: func(t testing.TB, prefix string) []string { return mem(t).Held(prefix) },
	})
}

// TestConformanceInRealTime runs the suite as on a server, with its clients racing for real.
func TestConformanceInRealTime(t *testing.T) {
	testserver.OnlyInAll(t, "the same suite in real time")
	if testing.Short() {
		t.Skip("the same rules in real time")
	}
	backendtest.Run(t, backendtest.Harness{Open: open})
}
