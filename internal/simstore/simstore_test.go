package simstore_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/simstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A store lives by the clock that it is given.
func TestClock(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	b := simstore.New(simstore.Config{Now: func() time.Time { return now }})
	c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Minute}
	g, err := b.Acquire(c)
	if err != nil || g.Token != uint64(now.UnixMicro()) {
		t.Errorf("Acquire = token %d, %v; want the clock's %d", g.Token, err, now.UnixMicro())
	}
	now = now.Add(time.Minute)
	if err := b.Renew(c); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Renew a minute later = %v, want ErrLost", err)
	}
}
