package redissim

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestRepeats runs seeds three times: the histories must be the same, but for one in a thousand, as
// what Go chooses is not a seed's. It says where two part.
//
//	go test ./internal/redissim -run TestRepeats -v -seeds=2700        some 2,000 of all kinds
func TestRepeats(t *testing.T) {
	var mu sync.Mutex
	differ, all := 0, 0
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			n := few(k, 20, 20)
			switch {
			case *seeds > 0:
				n = max(n/10, 4)
			case raceEnabled: // which has the scheduler choose at random
				n = 2
			}
			total := 0
			each(t, n, func(t *testing.T, seed uint64) bool {
				one := run(t, k, seed, variant{traced: true}).lines
				same := true
				for range 2 {
					if other := run(t, k, seed, variant{traced: true}).lines; same &&
						!slices.Equal(one, other) {
						same = false
						t.Logf("seed %d: %s", seed, difference(one, other))
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if !same {
					differ++
				}
				all++
				total += len(one)
				return true
			})
			if total < 100*n {
				t.Errorf("histories have %d lines on average: that shows nothing", total/n)
			}
		})
	}
	t.Logf("%d of %d seeds went differently in three runs", differ, all)
	if differ > 1+all/1000 && !raceEnabled {
		t.Errorf("%d of %d seeds went differently in three runs", differ, all)
	}
}

// difference is where two histories part, and a little of before.
func difference(a, b []string) string {
	k := 0
	for k < len(a) && k < len(b) && a[k] == b[k] {
		k++
	}
	part := func(lines []string) string {
		return strings.Join(lines[max(0, k-5):min(k+3, len(lines))], "\n\t")
	}
	return "\n\t" + part(a) + "\nand\n\t" + part(b)
}
