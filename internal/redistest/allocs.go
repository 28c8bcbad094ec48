package redistest

import (
	"context"
	"math"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// Allocations fails the test if a free Lock and Unlock on b allocate more than beyond more often
// than bare does, which is the same on the client library alone. It is a count and no time: it is
// the same on every machine, but for what happens beside it, as timers of a busy machine do, so the
// least of three counts is taken; and but for the race detector: under it a sync.Pool drops a
// quarter of what it is given, at random, and so a few more are allowed.
func Allocations(t testing.TB, b backend.Backend, beyond float64, bare func() error) {
	t.Helper()
	if raceEnabled {
		beyond += 4
	}
	ctx := context.Background()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	count := func(f func() error) float64 {
		least := math.Inf(1)
		for range 3 {
			least = min(least, testing.AllocsPerRun(500, func() {
				if err := f(); err != nil {
					t.Error(err)
				}
			}))
		}
		return least
	}
	recipe := count(bare)
	pair := count(func() error {
		g, err := l.Lock(ctx, "k")
		if err != nil {
			return err
		}
		return g.Unlock()
	})
	t.Logf("a pair allocates %v times, the bare recipe %v times", pair, recipe)
	if pair > recipe+beyond {
		t.Errorf("a pair allocates %v times more than the bare recipe, want at most %v",
			pair-recipe, beyond)
	}
}

// HasIFEQ reports whether srv has SET … IFEQ. A pair then is two commands of many words each, where
// the scripts have few, and each word is allocated.
func HasIFEQ(srv *testserver.Server) bool {
	_, err := srv.Do("SET", "redistest:ifeq", "v", "IFEQ", "none")
	return err == nil
}
