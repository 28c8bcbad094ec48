package tracing_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
	"github.com/holdfast-go/holdfast/tracing/contention"
)

func Example() {
	ctx, b := context.Background(), backend.Backend(membackend.New())
	exporter, mp := tracetest.NewInMemoryExporter(), metric.NewMeterProvider()
	traced := func() (*locker.Client[struct{}], *sdktrace.TracerProvider, error) {
		tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
		obs, err := tracing.NewObserver(tracing.Config{Tracer: tp, Meter: mp})
		if err != nil {
			return nil, nil, err
		}
		// Optional: a span for each request to the store.
		b = tracing.Wrap(b, tracing.Store{Tracer: tp, System: "redis"})
		l, err := locker.New(b, locker.Bare,
			locker.Config{Observer: obs, Classes: []string{"order-*"}})
		return l, tp, err
	}
	l, tp, err := traced()
	if err != nil {
		panic(err)
	}
	_ = locker.Do(ctx, l, "order-17", func(context.Context, struct{}) error { return nil })
	_ = l.Shutdown(ctx)
	_ = tp.ForceFlush(ctx)
	for _, span := range exporter.GetSpans() {
		if strings.HasPrefix(span.Name, "lock") {
			fmt.Println(span.Name)
		}
	}
	_ = tp.Shutdown(ctx)
	// Output:
	// lock order
}

func ExampleObserver_contention() {
	ctx, b := context.Background(), membackend.New()
	obs, err := tracing.NewObserver(tracing.Config{})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	tracker := contention.New(contention.Config{TraceURL: "http://localhost:16686/trace/{trace}"})
	l, err := locker.New(b, locker.Bare,
		locker.Config{Observer: locker.Observers(obs, tracker), Classes: []string{"order-*"}})
	mux.Handle("/debug/locks/", tracker)
	if err != nil {
		panic(err)
	}
	g, err := l.Lock(ctx, "order-17")
	if err != nil {
		panic(err)
	}
	page := httptest.NewRecorder()
	mux.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/debug/locks/json", nil))
	fmt.Println(strings.Contains(page.Body.String(), `"key": "order-17"`))
	_, _ = g.Unlock(), l.Shutdown(ctx)
	// Output: true
}
