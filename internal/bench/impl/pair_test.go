package impl

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/bench/redisd"
)

// BenchmarkPair is an uncontended Lock and Unlock of each implementation, for its allocations and for a profile:
//
//	go test -bench Pair/holdfast -cpuprofile cpu.out ./impl
func BenchmarkPair(b *testing.B) {
	server, err := redisd.Start()
	if err != nil {
		b.Fatal(err)
	}
	defer server.Stop()
	for _, im := range All() {
		b.Run(im.Name, func(b *testing.B) {
			c, err := im.Open(b.Context(), server.Addr)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			b.ReportAllocs()
			for b.Loop() {
				h, err := c.Lock(b.Context(), "bench-pair")
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Unlock(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
