package redlock_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	_ "github.com/holdfast-go/holdfast/rueidisbackend"
)

// BenchmarkPair takes and releases locks on five servers, by one or by sixteen goroutines: all
// healthy, one killed, and one that hangs from the first pair on. max is the longest TryAcquire.
func BenchmarkPair(b *testing.B) {
	for _, scheme := range []string{"redis", "rueidis"} {
		for _, fault := range []string{"none", "killed", "hung"} {
			for _, workers := range []int{1, 16} {
				b.Run(fmt.Sprintf("%s/%s/%d", scheme, fault, workers), func(b *testing.B) {
					pairs(b, scheme, fault, workers)
				})
			}
		}
	}
}

func pairs(b *testing.B, scheme, fault string, workers int) {
	servers := testserver.Redises(b, 5)
	q := dial(b, quorumURL(scheme, servers))
	defer q.Close()
	cycle(b, q, 300)
	switch fault {
	case "killed":
		servers[0].Kill()
	case "hung":
		servers[0].Stop()
		defer servers[0].Cont()
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, workers)
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				c := claim(backend.NewOwner())
				start := time.Now()
				if _, err := q.TryAcquire(b.Context(), c); err != nil {
					b.Errorf("TryAcquire = %v", err)
				}
				took[w] = append(took[w], time.Since(start))
				if _, err := q.Release(b.Context(), c); err != nil {
					b.Errorf("Release = %v", err)
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
	sorted := slices.Sorted(slices.Values(slices.Concat(took...)))
	b.ReportMetric(float64(sorted[len(sorted)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(sorted[len(sorted)-1].Microseconds()), "max-µs")
}
