package simulation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A trace is all that was asked of nodes and answered, and every hold: the history of a world.
type trace struct {
	w  *world
	on bool

	mu    sync.Mutex
	lines []string
}

func (t *trace) begin(w *world, on bool) { t.w, t.on = w, on }

func (t *trace) add(format string, args ...any) {
	line := fmt.Sprintf("%15d ", time.Since(t.w.start)) + fmt.Sprintf(format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
}

// plain is an answer without the names in it, which are not the seed's.
func plain(err error) string {
	var held *backend.HeldError
	if errors.As(err, &held) {
		return fmt.Sprintf("held for %v by token %d", held.RetryAfter, held.Token)
	}
	return fmt.Sprint(err)
}

// sorted returns the lines by time, and those of one moment in order of their text.
func (t *trace) sorted() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.lines)
	return t.lines
}

// TestRepeats runs seeds twice: a seed decides the whole history. What may be left to the scheduler
// is two goroutines of the code under test that wake in the same nanosecond (a quorum has one per
// claim and node), so one seed in four may differ; one in twenty-five does.
func TestRepeats(t *testing.T) {
	n := max(20, min(50, *seeds/20))
	switch {
	case raceEnabled:
		n = 2
	case testing.Short():
		n = 20
	}
	var mu sync.Mutex
	differ, total := 0, 0
	each(t, n, func(t *testing.T, seed uint64) bool {
		first, second := lines(t, seed), lines(t, seed)
		mu.Lock()
		defer mu.Unlock()
		total += len(first)
		if !slices.Equal(first, second) {
			differ++
			t.Logf("seed %d went differently: %s", seed, difference(first, second))
		}
		return true
	})
	t.Logf("%d of %d seeds had the same history twice, of %d lines on average", n-differ, n,
		total/n)
	if differ > n/4 && !raceEnabled { // the race detector has the scheduler choose at random
		t.Errorf("%d of %d seeds went differently when they were repeated", differ, n)
	}
	if total < 100*n {
		t.Errorf("histories have %d lines on average: that shows nothing", total/n)
	}
}

func lines(t *testing.T, seed uint64) (lines []string) {
	t.Helper()
	runThen(t, seed, variant{traced: true}, func(w *world) { lines = w.trace.sorted() })
	return lines
}

// difference is where two histories part, and a little of before.
func difference(a, b []string) string {
	k := 0
	for k < len(a) && k < len(b) && a[k] == b[k] {
		k++
	}
	part := func(lines []string) string {
		return strings.Join(lines[max(0, k-10):min(k+3, len(lines))], "\n\t")
	}
	return fmt.Sprintf("%d lines and %d, from line %d on\n\t%s\nand\n\t%s", len(a), len(b), k,
		part(a), part(b))
}
