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
	flush  func()
	pair   []time.Duration // what each pair of Lock and Unlock took
	turn   []time.Duration // what a pair took when all that was put off is counted in, by turn
}

func (v *variant) open(b *testing.B, store backend.Backend) {
	var cfg locker.Config
	v.flush = func() {}
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
		cfg.Observer, v.flush = obs, obs.Flush
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

// take times some pairs.
func (v *variant) take(b *testing.B) {
	const pairs = 50
	began := time.Now()
	for before := began; len(v.pair) < (len(v.turn)+1)*pairs; {
		g, err := v.client.Lock(b.Context(), "order-17")
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Unlock(); err != nil {
			b.Fatal(err)
		}
		now := time.Now()
		v.pair, before = append(v.pair, now.Sub(before)), now
	}
	v.flush()
	v.turn = append(v.turn, time.Since(began)/pairs)
}

// median is robust against what else the machine does.
func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2])
}

// What watching adds to an uncontended Lock and Unlock, on a Redis of this machine, where a round trip is as short as it gets,
// and in memory, where there is none. All variants take turns of some milliseconds, so that what else the machine does meets
// all of them. Printed are the median pair without watching, and what each way to watch adds to it: to the median of its
// pairs, and (/all) to that of its turns when the work that was put off is done at the end of each, while nobody else works.
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
				v.take(b) // the first asks the server for more
				v.pair, v.turn = nil, nil
			}
			for b.Loop() {
				for _, v := range all {
					v.take(b)
				}
			}
			pair, turn := median(all[0].pair), median(all[0].turn)
			b.ReportMetric(pair, "ns/off")
			for _, v := range all[1:] {
				b.ReportMetric(median(v.pair)-pair, "ns+"+v.name)
				b.ReportMetric(100*(median(v.pair)/pair-1), "%"+v.name)
				b.ReportMetric(100*(median(v.turn)/turn-1), "%"+v.name+"/all")
			}
		})
	}
}
