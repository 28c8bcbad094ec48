package tracing_test

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
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
	pair   []time.Duration // what each pair of Lock and Unlock took, in this turn
	share  [2][]float64    // what was added, of a pair without watching: by round; see BenchmarkShare
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
	b.Cleanup(func() { _ = v.client.Shutdown(context.Background()) })
}

// turn returns the median of some pairs, and the mean with all that was put off.
func (v *variant) turn(b *testing.B) [2]float64 {
	const pairs = 250 // longer than spans are put off for
	v.pair = v.pair[:0]
	began := time.Now()
	for before := began; len(v.pair) < pairs; {
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
	all := time.Since(began)
	slices.Sort(v.pair)
	return [2]float64{float64(v.pair[pairs/2]), float64(all) / pairs}
}

// quartiles returns the median and what the middle half lies between.
func quartiles(all []float64) (low, median, high float64) {
	slices.Sort(all)
	n := len(all)
	return all[n/4], all[n/2], all[n*3/4]
}

// pin puts the server on CPU 1 and this process on CPU 0, as internal/bench does: where the scheduler puts them makes more
// of a difference than what is measured.
func pin(b *testing.B, server int) {
	if runtime.NumCPU() < 2 {
		b.Log("one CPU for client and server")
		return
	}
	for range 2 { // again, for threads that were started meanwhile by one that was not pinned yet
		for pid, cpu := range map[int]string{server: "1", os.Getpid(): "0"} {
			if out, err := exec.Command("taskset", "-a", "-c", "-p", cpu, strconv.Itoa(pid)).CombinedOutput(); err != nil {
				b.Logf("not pinned: %v: %s", err, out)
				return
			}
		}
	}
	runtime.GOMAXPROCS(1)
}

// What watching adds to an uncontended Lock and Unlock, on a Redis of this machine, where a round trip is as short as it gets.
// Each way to watch takes turns of some milliseconds with not watching, first one and then the other going ahead, and each turn is
// compared with its neighbour alone, so that what else the machine does meets both. Printed are the medians over all turns of what is
// added to the median pair and (/all) to the mean of the turn, with all work that was put off done in it, and what the middle half
// lies between. "again" is without watching: how much is noise.
func BenchmarkShare(b *testing.B) {
	server := testserver.Redis(b)
	store, err := backend.Open(b.Context(), server.URL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	pin(b, server.PID())
	off := &variant{name: "off"}
	all := []*variant{
		off,
		{name: "again"},
		{name: "unsampled", sampler: sdktrace.NeverSample()},
		{name: "observed", sampler: sdktrace.AlwaysSample()},
		{name: "wrapped", sampler: sdktrace.AlwaysSample(), wrap: true},
		{name: "contention", tracker: true},
	}
	for _, v := range all {
		v.open(b, store)
		v.turn(b) // the first asks the server for more
	}
	var pair, mean []float64
	for round := 0; b.Loop(); round++ {
		for _, v := range all[1:] {
			var took [2][2]float64
			for i := range took {
				which := (i + round) % 2
				took[which] = []*variant{off, v}[which].turn(b)
			}
			pair, mean = append(pair, took[0][0]), append(mean, took[0][1])
			for i := range v.share {
				v.share[i] = append(v.share[i], 100*(took[1][i]/took[0][i]-1))
			}
		}
	}
	_, median, _ := quartiles(pair)
	b.ReportMetric(median, "ns/off")
	_, median, _ = quartiles(mean)
	b.ReportMetric(median, "ns/off/all")
	for _, v := range all[1:] {
		for i, suffix := range []string{"", "/all"} {
			low, share, high := quartiles(v.share[i])
			b.ReportMetric(share, "%"+v.name+suffix)
			b.Logf("%-15s %+6.1f %%  (%+.1f to %+.1f)", v.name+suffix, share, low, high)
		}
	}
}
