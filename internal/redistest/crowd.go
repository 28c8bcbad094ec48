package redistest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Crowd checks that requests that go together are all answered, each with its own answer, also
// right after SCRIPT FLUSH. b is on srv.
func Crowd(t *testing.T, srv *testserver.Server, b backend.Backend) {
	t.Helper()
	for range 3 {
		var crowd sync.WaitGroup
		for range 300 {
			crowd.Go(func() { oneOfMany(t, b) })
		}
		srv.MustDo("SCRIPT", "FLUSH")
		crowd.Wait()
	}
}

func oneOfMany(t *testing.T, b backend.Backend) {
	c := storetest.Claim("crowd-" + backend.NewOwner())
	g, err := b.TryAcquire(t.Context(), c)
	if err != nil {
		t.Errorf("acquire: %v", err)
		return
	}
	if s, err := b.Inspect(t.Context(), c.Key); err != nil || len(s.Holders) != 1 ||
		s.Holders[0].Owner != c.Owner || s.Token != g.Token {
		t.Errorf("%+v, %v", s, err)
	}
	// There is nothing to cancel, so this runs in the caller's goroutine.
	if _, err := b.Release(context.Background(), c); err != nil {
		t.Errorf("release: %v", err)
	}
	if err := b.Renew(t.Context(), c); !errors.Is(err, backend.ErrLost) {
		t.Errorf("again: %v", err)
	}
}
