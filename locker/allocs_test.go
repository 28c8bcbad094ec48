package locker_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// A free Lock and Unlock are a handful of allocations: the guard, what the first of a cohort makes,
// the name of the claim, the timer and its function, the context of the release, and two of the
// store in memory. (And, once in a millisecond, a reading of the clock.) It is a count and no time:
// it is the same on every machine.
func TestAllocationsOfAPair(t *testing.T) {
	l, err := locker.New(membackend.New(), locker.Bare, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	n := testing.AllocsPerRun(1000, func() {
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
	})
	if n > 9 {
		t.Errorf("a pair allocates %v times, want 8, and 9 at most", n)
	}
}
