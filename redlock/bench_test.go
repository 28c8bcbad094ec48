package redlock_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	_ "github.com/holdfast-go/holdfast/rueidisbackend"
)

// BenchmarkPair takes and releases locks on five servers: all well, one killed, one hung.
func BenchmarkPair(b *testing.B) {
	for _, scheme := range []string{"redis", "rueidis"} {
		for _, fault := range []string{"none", "killed", "hung"} {
			b.Run(scheme+"/"+fault, func(b *testing.B) { pairs(b, scheme, fault) })
		}
	}
}

func pairs(b *testing.B, scheme, fault string) {
	servers := testserver.Redises(b, 5)
	q := dial(b, quorumURL(scheme, servers))
	defer q.Close()
	switch fault {
	case "killed":
		servers[0].Kill()
	case "hung":
		servers[0].Stop()
		defer servers[0].Cont()
	}
	cycle(b, q, 300) // the node that is away is known as such
	const workers = 16
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				c := claim(backend.NewOwner())
				if _, err := q.TryAcquire(b.Context(), c); err != nil {
					b.Errorf("TryAcquire = %v", err)
				}
				if err := q.Release(b.Context(), c); err != nil {
					b.Errorf("Release = %v", err)
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}
