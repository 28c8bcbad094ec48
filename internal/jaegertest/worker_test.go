//go:build jaeger

package jaegertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	_ "github.com/holdfast-go/holdfast/redisbackend"
	"github.com/holdfast-go/holdfast/tracing"
)

// An order is what a worker process is to do: lock the key with several goroutines, say so, and hold for a time.
type order struct {
	Name, Store, Jaeger string
	Goroutines          int
	Hold                time.Duration
}

// A line is what it says: that a goroutine has the lock, or that all is done and sent.
type line struct {
	Waited time.Duration `json:",omitzero"`
	Done   bool          `json:",omitzero"`
	Error  string        `json:",omitzero"`
}

const workerEnv = "HOLDFAST_JAEGER_WORKER"

// work is the whole of a worker process.
func work() error {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(workerEnv)), &o); err != nil {
		return err
	}
	ctx := context.Background()
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(o.Jaeger), otlptracegrpc.WithInsecure())
	if err != nil {
		return err
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", o.Name))))
	obs, err := tracing.NewObserver(tracing.Config{Tracer: tp})
	if err != nil {
		return err
	}
	b, err := backend.Open(ctx, o.Store)
	if err != nil {
		return err
	}
	defer b.Close()
	l, err := locker.New(tracing.Wrap(b, tracing.Store{Tracer: tp, System: "redis"}), locker.Bare, locker.Config{Observer: obs})
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
	for range o.Goroutines {
		wg.Go(func() {
			ctx, span := tp.Tracer("test").Start(ctx, "request")
			defer span.End()
			began := time.Now()
			g, err := l.Lock(ctx, "order-17")
			if err != nil {
				say(line{Error: err.Error()})
				return
			}
			say(line{Waited: time.Since(began)})
			time.Sleep(o.Hold) // the work under the lock
			if err := g.Unlock(); err != nil {
				say(line{Error: err.Error()})
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
	say(line{Done: true})
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
