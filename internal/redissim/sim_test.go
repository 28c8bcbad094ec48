package redissim

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/jitter"
	"github.com/holdfast-go/holdfast/internal/jitter/virtual"
)

var (
	seeds = flag.Int("seeds", 0, "how many seeds of each kind to simulate; 0 is a short form")
	first = flag.Uint64("first", 1, "the first seed")
	one   = flag.Uint64("seed", 0, "a seed to repeat, with its history")
	rates = flag.Int("rates", 0,
		"how many seeds to run of each variant, to count in how many it is found")
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a simulation makes much that is soon forgotten, and is small
	jitter.Use(virtual.Draw)
	goleak.VerifyTestMain(m)
}

// TestSimulation runs each kind of world: nothing may be wrong in any seed.
//
// covers: A2, A3, A5, B7, B8, C4, C9, D2, D4, G1, K1, K3, Q6, W1, W2
func TestSimulation(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			if *one != 0 {
				w := run(t, k, *one, variant{traced: true})
				t.Logf("seed %d: %d holds\n%s", *one, w.holds, w.history())
				report(t, w)
				return
			}
			n := few(k, 100, 10)
			began := time.Now()
			var holds, natives, many atomic.Int64
			each(t, n, func(t *testing.T, seed uint64) bool {
				w := run(t, k, seed, variant{})
				holds.Add(int64(w.holds))
				natives.Add(int64(w.natives))
				many.Add(int64(w.many))
				if len(w.found) > 0 {
					report(t, again(t, w))
				}
				return true
			})
			t.Logf("%d seeds, %d holds, %d native commands, %d attempts for two keys, %.0f "+
				"holds a second", n, holds.Load(), natives.Load(), many.Load(),
				float64(holds.Load())/time.Since(began).Seconds())
			if k.many && many.Load() == 0 {
				t.Error("no attempt for two keys at once")
			}
			if k.native && natives.Load() < holds.Load()/20 {
				t.Errorf("only %d native commands", natives.Load())
			}
			if holds.Load() < int64(10*n) {
				t.Errorf("only %d holds in %d seeds: that shows nothing", holds.Load(), n)
			}
		})
	}
}

// few is how many seeds to run of a kind: those that were asked for, or a long and a short form,
// for the race detector and -short. A quorum takes as long as ten of the others.
func few(k kind, long, short int) int {
	n := long
	switch {
	case *seeds > 0:
		n = *seeds
	case testing.Short() || raceEnabled:
		n = short
	}
	if k.quorum {
		n = max(n/5, 2)
	}
	return n
}

// again runs a seed in which something was found until it is found with its history, a few times at
// most: what Go chooses is not the seed's.
func again(t *testing.T, w *world) *world {
	t.Helper()
	for range 5 {
		if o := run(t, w.kind, w.seed, variant{traced: true}); len(o.found) > 0 {
			return o
		}
	}
	return w
}

// report fails the test for what was found, with the history in a file of its own.
func report(t *testing.T, w *world) {
	t.Helper()
	if len(w.found) == 0 {
		return
	}
	//nolint:usetesting // it stays
	file, err := os.CreateTemp("", fmt.Sprintf("redissim-%s-%d-*.txt", w.kind.name, w.seed))
	if err == nil {
		_, err = file.WriteString(w.history() + "\n")
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Error(err)
	}
	t.Errorf("%s, seed %d; history of %d lines in %s; repeat with go test ./internal/redissim -v "+
		"-run 'TestSimulation/%s$' -seed=%d\n%s",
		w.kind.name, w.seed, len(w.lines), file.Name(), w.kind.name, w.seed,
		strings.Join(w.found, "\n"))
}

// each runs f for n seeds, on all processors, until it says to stop.
func each(t *testing.T, n int, f func(t *testing.T, seed uint64) bool) {
	t.Helper()
	var next atomic.Uint64
	t.Run("seeds", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for {
					k := next.Add(1) - 1
					if k >= uint64(n) || !f(t, *first+k) {
						next.Store(uint64(n))
						return
					}
				}
			})
		}
	})
}
