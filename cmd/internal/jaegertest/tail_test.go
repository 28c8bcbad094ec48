//go:build jaeger

package jaegertest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const decisionWait = 10 * time.Second

// tailSampling is the configuration that docs/tracing.md recommends, which decides sooner.
func tailSampling(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/tracing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, begins := strings.Cut(string(page), "```yaml\nprocessors:\n  tail_sampling:\n")
	block, _, ends := strings.Cut(block, "```\n")
	with := strings.Replace(block, "decision_wait: 30s",
		fmt.Sprint("decision_wait: ", decisionWait), 1)
	if !begins || !ends || with == block {
		t.Fatal("docs/tracing.md has no tail_sampling of 30s any more")
	}
	return "processors:\n  tail_sampling:\n" + with
}

// Twelve processes with one request each contend for six keys, so that many locks are free, and
// only what the recommended tail sampling keeps is kept: the real processor decides. No link leads
// to what was not, and bars cover what they cover without it.
func TestTailSampling(t *testing.T) {
	for name, store := range podStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			links, dead := tail(t, store(t))
			most := 0
			if name == "etcd" { // a release does not tell of claims younger than 10 ms
				most = links / 100
			}
			if dead > most {
				t.Errorf("%d of %d links lead nowhere", dead, links)
			}
		})
	}
}

func tail(t *testing.T, store string) (links, dead int) {
	t.Helper()
	j := startJaegerWith(t, "tail_sampling", tailSampling(t))
	var workers []worker
	for i := range 12 {
		workers = append(workers, startWorker(t, order{
			Name: fmt.Sprint("pod", i), Store: store, Jaeger: j.otlp, Goroutines: 1, Keys: 6,
			Rounds: 60, Hold: 50 * time.Millisecond,
		}))
	}
	sent := int64(0)
	for _, w := range workers {
		sent += w.next(t).Spans
	}
	kept, done := map[string]span{}, time.Now()
	// Until nothing more is decided.
	for before := -1; before < len(kept) || time.Since(done) < 2*decisionWait; {
		before = len(kept)
		time.Sleep(decisionWait / 2)
		for i := range workers {
			spans, err := j.kept(fmt.Sprint("pod", i))
			if err != nil {
				t.Fatal(err)
			}
			for id, s := range spans {
				kept[id] = s
			}
		}
	}
	var parts []float64
	for _, s := range kept {
		for _, to := range blockers(s, kept) {
			links++
			if to == nil {
				dead++
				t.Logf("a link of %s of %s, which took %v, leads nowhere", s.OperationName,
					s.service, s.took())
			}
		}
		if s.OperationName == "lock.wait order" && s.took() >= slow {
			parts = append(parts, covered(s, bars(s, kept)))
		}
	}
	if slices.Sort(parts); len(parts) < 20 || int64(len(kept)) == sent {
		t.Fatalf("%d of %d spans are kept, %d slow waits: that shows nothing", len(kept), sent,
			len(parts))
	}
	t.Logf("%d of %d spans are kept, %d links, %d dead; %d slow waits, covered %.1f %% in the "+
		"median, %.1f %% at the tenth percentile",
		len(kept), sent, links, dead, len(parts), 100*parts[len(parts)/2], 100*parts[len(parts)/10])
	return links, dead
}
