package tracing_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
	_ "github.com/holdfast-go/holdfast/redisbackend" // redis://
	"github.com/holdfast-go/holdfast/tracing"
	"github.com/holdfast-go/holdfast/tracing/contention"
)

// discard is a collector that takes everything at no cost.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }

// A variant is a client that is watched in some way.
type variant struct {
	name    string
	sampler sdktrace.Sampler // nil: not traced
	wrap    bool
	tracker bool

	client *locker.Client[struct{}]
	took   []time.Duration
}

func (v *variant) open(b *testing.B, store backend.Backend) {
	var cfg locker.Config
	if v.tracker {
		cfg.Observer = contention.New(contention.Config{})
	}
	if v.sampler != nil {
		tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(discard{}), sdktrace.WithIDGenerator(tracing.IDs{}), sdktrace.WithSampler(v.sampler))
		b.Cleanup(func() { _ = tp.Shutdown(context.Background()) })
		obs, err := tracing.NewObserver(tracing.Config{Tracer: tp, Meter: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))})
		if err != nil {
			b.Fatal(err)
		}
		cfg.Observer = obs
		if v.wrap {
			store = tracing.Wrap(store, tracing.Store{Tracer: tp, System: "redis"})
		}
	}
	var err error
	if v.client, err = locker.New(store, locker.Bare, cfg); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = v.client.Close(context.Background()) })
}

// slice times a few pairs of Lock and Unlock.
func (v *variant) slice(b *testing.B) {
	const pairs = 10
	began := time.Now()
	for range pairs {
		g, err := v.client.Lock(b.Context(), "order-17")
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
	v.took = append(v.took, time.Since(began)/pairs)
}

// quick is the lower quartile: what else the machine does makes slices longer, and none shorter.
func (v *variant) quick() time.Duration {
	slices.Sort(v.took)
	return v.took[len(v.took)/4]
}

// What watching adds to an uncontended Lock and Unlock, on a Redis of this machine, where a round trip is as short as it gets,
// and in memory, where there is none. All variants take turns of a millisecond, so that what else the machine does meets
// all of them.
func BenchmarkShare(b *testing.B) {
	for name, url := range map[string]string{"redis": testserver.Redis(b).URL(), "memory": "mem://"} {
		b.Run(name, func(b *testing.B) {
			all := []*variant{
				{name: "off"},
				{name: "unsampled", sampler: sdktrace.NeverSample()},
				{name: "observed", sampler: sdktrace.AlwaysSample()},
				{name: "wrapped", sampler: sdktrace.AlwaysSample(), wrap: true},
				{name: "contention", tracker: true},
			}
			store, err := backend.Open(b.Context(), url)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = store.Close() })
			for _, v := range all {
				v.open(b, store)
				v.slice(b) // the first asks the server for more
			}
			for b.Loop() {
				for _, v := range all {
					v.slice(b)
				}
			}
			off := all[0].quick()
			b.ReportMetric(float64(off.Nanoseconds()), "ns/off")
			for _, v := range all[1:] {
				b.ReportMetric(float64((v.quick() - off).Nanoseconds()), "ns+"+v.name)
				b.ReportMetric(100*float64(v.quick()-off)/float64(off), "%"+v.name)
			}
		})
	}
}
