package locker_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

func benchClient(b *testing.B) *locker.Client[struct{}] {
	l, err := locker.New(membackend.New(), locker.Bare, locker.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Shutdown(context.Background()) })
	return l
}

// What an acquisition costs in this process, beside the store's part.
func BenchmarkUncontended(b *testing.B) {
	l := benchClient(b)
	b.ReportAllocs()
	for b.Loop() {
		g, err := l.Lock(b.Context(), "k")
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
}

// Sixty-four goroutines want one key, so nearly every hold is handed on within the process.
func BenchmarkPasses(b *testing.B) {
	l := benchClient(b)
	b.ReportAllocs()
	b.SetParallelism(32) // × GOMAXPROCS
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			g, err := l.Lock(b.Context(), "k")
			if err != nil {
				b.Error(err)
				return
			}
			if err := g.Unlock(); err != nil {
				b.Error(err)
			}
		}
	})
}
