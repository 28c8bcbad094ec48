package redlock_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// covers: Q2
func TestConformance(t *testing.T) {
	for name, n := range map[string]int{"2": 2, "3": 3, "5": 5} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && n != 3 {
				t.Skip("other numbers of nodes")
			}
			h := harness(n, nil)
			var makers storetest.Makers
			open := h.Open
			h.Open = func(t testing.TB) backend.Backend { return makers.Route(open(t)) }
			h.Bubble = true
			backendtest.Run(t, h)
		})
	}
}

// TestConformanceByURL runs the suite on three nodes that are opened as applications do.
// TestConformanceOnRedis is the one in real time.
func TestConformanceByURL(t *testing.T) {
	var makers storetest.Makers
	backendtest.Run(t, backendtest.Harness{Bubble: true, Open: func(t testing.TB) backend.Backend {
		return makers.Route(dial(t, memURL(t, 3)))
	}})
}
