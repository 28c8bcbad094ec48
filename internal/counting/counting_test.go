package counting

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/simstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCounts sees that a minimum is granted and kept, and that a repeat is told what was granted. A
// store that is deaf says it, and does not keep it.
func TestCounts(t *testing.T) {
	now := func() time.Time { return time.Unix(1000, 0) }
	for _, deaf := range []bool{false, true} {
		s := &Store{Store: simstore.New(simstore.Config{Now: now}), Deaf: deaf}
		acquire := func(least uint64) uint64 {
			t.Helper()
			c := backend.Claim{
				Key: "k", Owner: backend.NewOwner(), TTL: time.Second,
				MinToken: least,
			}
			g, err := s.Acquire(c)
			if err != nil {
				t.Fatal(err)
			}
			if least > 0 {
				c.MinToken += 5 // asks for more, and is told what was granted
			}
			if again, err := s.Acquire(c); err != nil || !deaf && again.Token != g.Token {
				t.Errorf("a repeat is told %d, %v, after %d", again.Token, err, g.Token)
			}
			c.NoneInFlight = true
			if _, err := s.Release(c); err != nil {
				t.Fatal(err)
			}
			return g.Token
		}
		const least = 1 << 51
		if got := acquire(least); got != least {
			t.Errorf("a grant with a minimum of %d has %d", uint64(least), got)
		}
		if got := acquire(0); (got > least) == deaf {
			t.Errorf("deaf: %v, and the next grant has %d", deaf, got)
		}
	}
	s := &Store{Store: simstore.New(simstore.Config{Now: now})}
	c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Second}
	g, err := s.Acquire(c)
	if err != nil {
		t.Fatal(err)
	}
	c.MinToken = g.Token + 10
	if err := s.Renew(c); err != nil {
		t.Fatal(err)
	}
	if again, err := s.Acquire(c); err != nil || again.Token != c.MinToken {
		t.Errorf("a repeat with the minimum that it was raised to is told %d, %v; want %d",
			again.Token, err, c.MinToken)
	}
}
