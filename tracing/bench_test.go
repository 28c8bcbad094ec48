package tracing_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
	"github.com/holdfast-go/holdfast/tracing/contention"
)

// discard is a collector that takes everything at no cost.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }

// What a free Lock and Unlock cost without a network, watched in different ways: what watching adds
// is the difference to "off". With spans, that is what the caller pays until Unlock returns and
// (cpu-ns/op) with the work of the SDK's batcher and the garbage collector, which does not depend
// on what else the machine does.
func BenchmarkPair(b *testing.B) {
	for name, v := range map[string]struct {
		sampler       sdktrace.Sampler // nil: not traced
		wrap, tracker bool
	}{
		"off":        {},
		"contention": {tracker: true},
		"unsampled":  {sampler: sdktrace.NeverSample()},
		"sampled":    {sampler: sdktrace.AlwaysSample()},
		"wrapped":    {sampler: sdktrace.AlwaysSample(), wrap: true},
	} {
		b.Run(name, func(b *testing.B) {
			cfg := locker.Config{Classes: []string{"order-*"}}
			store := backend.Backend(membackend.New())
			if v.tracker {
				cfg.Observer = contention.New(contention.Config{})
			}
			if v.sampler != nil {
				tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(discard{}),
					sdktrace.WithSampler(v.sampler))
				b.Cleanup(func() { _ = tp.Shutdown(context.Background()) })
				obs, err := tracing.NewObserver(tracing.Config{
					Tracer: tp, Meter: metric.NewMeterProvider(
						metric.WithReader(metric.NewManualReader())),
				})
				if err != nil {
					b.Fatal(err)
				}
				cfg.Observer = obs
				if v.wrap {
					store = tracing.Wrap(store, tracing.Store{Tracer: tp, System: "mem"})
				}
			}
			l, err := locker.New(store, locker.Bare, cfg)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = l.Shutdown(context.Background()) })
			b.ReportAllocs()
			before := used(b)
			for b.Loop() {
				g, err := l.Lock(b.Context(), "order-17")
				if err != nil {
					b.Fatal(err)
				}
				if err := g.Unlock(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(used(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
