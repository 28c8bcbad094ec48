//go:build jaeger

package jaegertest

import (
	"flag"
	"fmt"
	"net/url"
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

func (s span) tagged(key string) string {
	text, _ := s.tag(key).(string)
	return text
}

// covered is what part of a wait its bars are.
func covered(wait span, bars []span) float64 {
	var sum int64
	for _, b := range bars {
		sum += b.Duration
	}
	return float64(sum) / float64(wait.Duration)
}

// slow is how long a wait is at least that is to be explained.
const slow = 20 * time.Millisecond

// Two services with eight goroutines each contend for four keys. The bars of a slow wait are nearly
// all of it, however many requests are sampled. No link is dead, also where only one request of
// twenty is sampled, and where only slow waits have spans.
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
				workers = append(workers, startWorker(t, order{
					Name: name, Store: srv.URL(), Jaeger: j.otlp,
					Goroutines: 8, Keys: 4, Rounds: c.rounds, Hold: 20 * time.Millisecond,
					Sample: c.sample, SpansOver: c.over,
				}))
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
				for _, to := range blockers(s, all) {
					links++
					if to == nil {
						dead++
					}
				}
				if s.OperationName != "lock.wait order" {
					continue
				}
				waits++
				if s.tag("holdfast.holder.trace_id") != nil && s.tag("holdfast.holder.pid") != nil {
					told++
				}
				if s.took() >= slow {
					parts = append(parts, covered(s, bars(s, all)))
				}
			}
			slices.Sort(parts)
			if len(parts) < 10 || links == 0 {
				t.Fatalf("%d slow waits, %d links, spans %v", len(parts), links, named)
			}
			tenth, median := parts[len(parts)/10], parts[len(parts)/2]
			t.Logf("%d links, %d of %d waits say who was in the way for the longest; the bars of "+
				"%d slow waits cover %.1f %% in the median, %.1f %% at the tenth percentile",
				links, told, waits, len(parts), 100*median, 100*tenth)
			if dead > 0 {
				t.Errorf("%d of %d links lead nowhere", dead, links)
			}
			if told < waits {
				t.Errorf("%d of %d waits do not say who was in the way", waits-told, waits)
			}
			if median < 0.85 || tenth < 0.6 {
				t.Errorf("the bars cover too little of the slow waits: %s",
					strings.Fields(fmt.Sprint(parts))[:10])
			}
		})
	}
}

// Twelve processes with one request each contend for two keys, as pods do. Nobody is drawn for more
// than 10 ms longer than it held, but for the time that hand-overs took, which is long on a busy
// machine. Nobody is drawn for a hold that was over, and the longest bar is of who held for the
// longest.
func TestPods(t *testing.T) {
	for name, store := range podStores {
		t.Run(name, func(t *testing.T) { pods(t, store(t)) })
	}
}

// podStores start a store of each kind, and return its URL.
var podStores = map[string]func(*testing.T) string{
	"redis": func(t *testing.T) string { return testserver.Redis(t).URL() },
	"rueidis": func(t *testing.T) string {
		return strings.Replace(testserver.Redis(t).URL(), "redis:", "rueidis:", 1)
	},
	"etcd": func(t *testing.T) string {
		return "etcd://" + strings.TrimPrefix(testserver.Etcd(t).URL(), "http://")
	},
	"file": func(t *testing.T) string { return "file://" + t.TempDir() },
	"quorum": func(t *testing.T) string {
		nodes := url.Values{}
		for range 3 {
			nodes.Add("node", testserver.Redis(t).URL())
		}
		return "redlock://?" + nodes.Encode()
	},
}

// rounds is how many requests each process of TestPods makes. 280 are some 3,000 slow waits.
var rounds = flag.Int("rounds", 15, "how many requests each process of TestPods makes")

func pods(t *testing.T, store string) {
	j, all := startJaeger(t), map[string]span{}
	var workers []worker
	for i := range 12 {
		workers = append(workers, startWorker(t, order{
			Name: fmt.Sprint("pod", i), Store: store, Jaeger: j.otlp, Goroutines: 1, Keys: 2,
			Rounds: *rounds, Hold: 50 * time.Millisecond, Keyed: true,
		}))
	}
	for i, w := range workers {
		for id, s := range j.spans(t, fmt.Sprint("pod", i), "", int(w.next(t).Spans)) {
			all[id] = s
		}
	}
	var locks []span
	for _, s := range all {
		if s.OperationName == "lock order" && s.heldFrom() > 0 {
			locks = append(locks, s)
		}
	}
	var parts []float64
	wrong, blamed := 0, 0
	for _, w := range all {
		if w.OperationName != "lock.wait order" || w.took() < slow {
			continue
		}
		// held is for how long a trace held the key during the wait, nobody for how long nobody
		// did.
		held := map[string]int64{}
		longest, nobody := int64(0), w.Duration
		for _, l := range locks {
			if l.tagged("holdfast.key") == w.tagged("holdfast.key") {
				from, to := max(l.heldFrom(), w.StartTime), min(l.StartTime+l.Duration,
					w.StartTime+w.Duration)
				held[l.TraceID] += max(to-from, 0)
				longest, nobody = max(longest, to-from), nobody-max(to-from, 0)
			}
		}
		drawn := bars(w, all)
		parts = append(parts, covered(w, drawn))
		slices.SortFunc(drawn, func(a, b span) int { return int(a.StartTime - b.StartTime) })
		for i, last := 0, w.StartTime; i < len(drawn); i++ {
			const most = 2 // as times are cut to microseconds
			b := drawn[i]
			if b.StartTime < last-most || b.StartTime+b.Duration > w.StartTime+w.Duration+most {
				t.Errorf("a bar of %d µs from %d in a wait of %d, after one until %d", b.Duration,
					b.StartTime-w.StartTime, w.Duration, last-w.StartTime)
			}
			if last = b.StartTime + b.Duration; b.tagged("holdfast.holder.service") == w.service {
				t.Errorf("%s waited for itself", w.service)
			}
		}
		slices.SortFunc(drawn, func(a, b span) int { return int(b.Duration - a.Duration) })
		for i, b := range drawn {
			of := b.tagged("holdfast.holder.trace_id")
			if b.Duration-held[of] > 10_000+max(nobody, 0) {
				blamed++
				t.Logf("%s is drawn for %v, and held for %d µs", b.OperationName, b.took(),
					held[of])
			}
			if i == 0 && longest-held[of] > 5_000+max(nobody, 0) {
				wrong++
			}
		}
	}
	slices.Sort(parts)
	tenth, median := parts[len(parts)/10], parts[len(parts)/2]
	t.Logf("%d slow waits, covered %.1f %% in the median, %.1f %% at the tenth percentile; %d "+
		"with a wrong longest, %d blamed for over 10 ms too much",
		len(parts), 100*median, 100*tenth, wrong, blamed)
	// Far from what an idle machine shows: spans end when a release was answered, and hand-overs
	// wait for a processor. In virtual time tracing's TestBarsOfPods is exact.
	if len(parts) < 50 || median < 0.7 || tenth < 0.4 || wrong*3 > len(parts) ||
		blamed*3 > len(parts) {
		t.Errorf("too little is known, or too much said")
	}
}
