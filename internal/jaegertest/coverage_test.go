//go:build jaeger

package jaegertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// heldFrom is when what a span is of was held from, in microseconds; 0 if it never was.
func (s span) heldFrom() int64 {
	for _, l := range s.Logs {
		for _, f := range l.Fields {
			if f.Key == "event" && f.Value == "granted" {
				return l.Timestamp
			}
		}
	}
	return 0
}

func (s span) tag(key string) any {
	for _, t := range s.Tags {
		if t.Key == key {
			return t.Value
		}
	}
	return nil
}

// covered is what part of a wait the holds that it links to last.
func covered(wait span, by []*span) float64 {
	end := wait.StartTime + wait.Duration
	slices.SortFunc(by, func(a, b *span) int { return int(a.heldFrom() - b.heldFrom()) })
	sum, from := int64(0), wait.StartTime
	for _, s := range by {
		begin, over := max(s.heldFrom(), from), min(s.StartTime+s.Duration, end)
		if over > begin {
			sum += over - begin
			from = over
		}
	}
	return float64(sum) / float64(wait.Duration)
}

// slow is how long a wait is at least that is to be explained.
const slow = 20 * time.Millisecond

// Two services with eight goroutines each contend for four keys. The holds that a slow wait links
// to are what it waited for: nearly all of it, with every lock sampled. No link is dead, also where
// only one request of twenty is sampled, and where only slow waits have spans.
func TestCoverage(t *testing.T) {
	for _, c := range []struct {
		sample float64
		rounds int
		over   time.Duration
	}{{1, 30, 0}, {0.05, 120, 0}, {0.5, 60, slow}} {
		t.Run(fmt.Sprint(c.sample, c.over), func(t *testing.T) {
			j, srv := startJaeger(t), testserver.Redis(t)
			names, all, named := []string{"a", "b"}, map[string]span{}, map[string]bool{}
			var workers []worker
			for _, name := range names {
				workers = append(workers, startWorker(t, order{Name: name, Store: srv.URL(), Jaeger: j.otlp,
					Goroutines: 8, Keys: 4, Rounds: c.rounds, Hold: 20 * time.Millisecond, Sample: c.sample, SpansOver: c.over}))
			}
			for i, w := range workers {
				for id, s := range j.spans(t, names[i], "", int(w.next(t).Spans)) {
					all[id] = s
					named[s.OperationName] = true
				}
			}
			var parts []float64
			links, dead, told, waits := 0, 0, 0, 0
			for _, s := range all {
				found := blockers(s, all)
				links += len(found)
				live := slices.DeleteFunc(slices.Clone(found), func(to *span) bool { return to == nil })
				dead += len(found) - len(live)
				if s.OperationName != "lock.wait" {
					continue
				}
				waits++
				if s.tag("holdfast.holder.trace_id") != nil && s.tag("holdfast.holder.pid") != nil && s.tag("holdfast.blocked_for") != nil {
					told++
				}
				if s.took() >= slow {
					parts = append(parts, covered(s, live))
				}
			}
			slices.Sort(parts)
			if len(parts) < 10 || links == 0 {
				t.Fatalf("%d slow waits, %d links, spans %v", len(parts), links, named)
			}
			tenth, median := parts[len(parts)/10], parts[len(parts)/2]
			t.Logf("%d links, %d of %d waits say who was in the way for the longest; the links of %d slow waits cover %.1f %% in the median, %.1f %% at the tenth percentile",
				links, told, waits, len(parts), 100*median, 100*tenth)
			if dead > 0 {
				t.Errorf("%d of %d links lead nowhere", dead, links)
			}
			if told < waits {
				t.Errorf("%d of %d waits do not say who was in the way", waits-told, waits)
			}
			if c.sample == 1 && (median < 0.95 || tenth < 0.8) {
				t.Errorf("the linked holds cover too little of the slow waits: %s", strings.Fields(fmt.Sprint(parts))[:10])
			}
		})
	}
}
