package redlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
)

// covers: Q2
func TestConformance(t *testing.T) {
	for name, n := range map[string]int{"2": 2, "3": 3, "5": 5} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && n != 3 {
				t.Skip("other numbers of nodes")
			}
			h := harness(n, nil)
			var makers makers
			open := h.Open
			h.Open = func(t testing.TB) backend.Backend { return &routed{open(t), &makers} }
			h.Bubble = true
			backendtest.Run(t, h)
		})
	}
}

// TestConformanceByURL runs the suite on three nodes that are opened as applications do.
// TestConformanceOnRedis is the one in real time.
func TestConformanceByURL(t *testing.T) {
	var makers makers
	backendtest.Run(t, backendtest.Harness{Bubble: true, Open: func(t testing.TB) backend.Backend {
		return &routed{Backend: dial(t, memURL(t, 3)), makers: &makers}
	}})
}

// routed sends repeats of an attempt to the client that made it, where they come from outside of
// tests: the majority of another client may include a node that has not been told the token that
// was agreed on yet, so that client would find a higher one.
type routed struct {
	backend.Backend
	makers *makers
}

type makers struct{ sync.Map }

func (r *routed) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if maker, ok := r.makers.LoadOrStore(c.Key+c.ID(), r.Backend); ok && ctx.Err() == nil {
		if m, ok := maker.(backend.Backend); ok {
			if g, err := m.TryAcquire(ctx, c); !errors.Is(err, backend.ErrClosed) {
				return g, err
			}
		}
	}
	return r.Backend.TryAcquire(ctx, c)
}
