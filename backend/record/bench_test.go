package record_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/backend/record/recordtest"
)

// BenchmarkCodec writes and reads a record with one hold, as a verb does.
func BenchmarkCodec(b *testing.B) {
	r := record.Record{}
	c := backend.Claim{
		Key: "k", Owner: backend.NewOwner(), TTL: time.Minute,
		Meta: backend.Meta{Service: "shop", Host: "host-1", PID: 4711},
	}
	if _, err := r.Acquire(c, time.Now()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ReportMetric(float64(len(r.Encode("k"))), "bytes")
	for b.Loop() {
		if _, err := record.Decode("k", r.Encode("k")); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFreePair takes and gives back a free key of a store in memory.
func BenchmarkFreePair(b *testing.B) {
	m := recordtest.NewMemory()
	l := record.New(record.ByVersion(m), m.Config())
	defer func() { _ = l.Close() }()
	b.ReportAllocs()
	for b.Loop() {
		c := backend.Claim{
			Key: "k", Owner: backend.NewOwner(), TTL: time.Minute,
			NoneInFlight: true,
		}
		if _, err := l.TryAcquire(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		if _, err := l.Release(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}
