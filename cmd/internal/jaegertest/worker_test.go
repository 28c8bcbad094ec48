//go:build jaeger

package jaegertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfast-go/holdfast/backend"
	_ "github.com/holdfast-go/holdfast/backend/filebackend"
	_ "github.com/holdfast-go/holdfast/etcdbackend"
	"github.com/holdfast-go/holdfast/locker"
	_ "github.com/holdfast-go/holdfast/redisbackend"
	_ "github.com/holdfast-go/holdfast/redlock"
	_ "github.com/holdfast-go/holdfast/rueidisbackend"
	"github.com/holdfast-go/holdfast/tracing"
)

// An order is what a worker process is to do: lock a key with several goroutines, say so, and hold
// for a time. With Rounds each of them does so as often, each time one of Keys for half of Hold to
// one and a half, and only the end is said.
type order struct {
	Name, Store, Jaeger string
	Goroutines          int
	Hold                time.Duration
	Keys, Rounds        int
	Sample              float64 // of the requests; 0 is all
	SpansOver           time.Duration
	Keyed               bool // spans have the key
}

// A line is what it says: that a goroutine has the lock, or that all is done and sent.
type line struct {
	Waited time.Duration `json:",omitzero"`
	Done   bool          `json:",omitzero"`
	Spans  int64         `json:",omitzero"` // that were sent
	Error  string        `json:",omitzero"`
}

// A counter counts the spans that are sent.
type counter struct{ n atomic.Int64 }

func (*counter) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (c *counter) OnEnd(sdktrace.ReadOnlySpan)                   { c.n.Add(1) }
func (*counter) ForceFlush(context.Context) error                { return nil }
func (*counter) Shutdown(context.Context) error                  { return nil }

const workerEnv = "HOLDFAST_JAEGER_WORKER"

// work is the whole of a worker process.
func work() error {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(workerEnv)), &o); err != nil {
		return err
	}
	ctx := context.Background()
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(o.Jaeger),
		otlptracegrpc.WithInsecure())
	if err != nil {
		return err
	}
	sampler := sdktrace.AlwaysSample()
	if o.Sample > 0 {
		sampler = sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Sample))
	}
	var sent counter
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter),
		sdktrace.WithSpanProcessor(&sent), sdktrace.WithSampler(sampler),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", o.Name))))
	obs, err := tracing.NewObserver(tracing.Config{
		Tracer: tp, SpansOver: o.SpansOver,
		ShowKeys: o.Keyed,
	})
	if err != nil {
		return err
	}
	b, err := backend.Open(ctx, o.Store)
	if err != nil {
		return err
	}
	defer b.Close()
	l, err := locker.New(tracing.Wrap(b, tracing.Store{Tracer: tp, System: "redis"}), locker.Bare,
		locker.Config{
			Observer: obs, Service: o.Name, Classes: []string{"order-*"},
		})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	say := func(l line) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(os.Stdout).Encode(l)
	}
	request := func(key string, hold time.Duration) {
		ctx, span := tp.Tracer("test").Start(ctx, "request")
		defer span.End()
		began := time.Now()
		g, err := l.Lock(ctx, key)
		if err != nil {
			say(line{Error: err.Error()})
			return
		}
		if o.Rounds == 0 {
			say(line{Waited: time.Since(began)})
		}
		time.Sleep(hold) // the work under the lock
		if err := g.Unlock(); err != nil {
			say(line{Error: err.Error()})
		}
	}
	for range o.Goroutines {
		wg.Go(func() {
			if o.Rounds == 0 {
				request("order-17", o.Hold)
			}
			for range o.Rounds {
				request(fmt.Sprint("order-", rand.IntN(o.Keys)), o.Hold/2+rand.N(o.Hold))
			}
		})
	}
	wg.Wait()
	if err := l.Shutdown(ctx); err != nil {
		return err
	}
	if err := tp.Shutdown(ctx); err != nil {
		return err
	}
	say(line{Done: true, Spans: sent.n.Load()})
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // until the test has read everything
	return nil
}

func runWorker() int {
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
