package redlock_test

import (
	"context"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/redlock"
	"github.com/holdfast-go/holdfast/tracing"
)

var tardy atomic.Bool // the node of tardy:// cannot be reached yet

func init() {
	backend.Register("tardy", func(context.Context, *url.URL) (backend.Backend, error) {
		if tardy.Load() {
			return nil, backend.ErrUnavailable
		}
		return membackend.New(), nil
	})
}

// Nodes that a URL names can be wrapped, those too that could not be reached at first: each one's answer is a span.
func TestWrappedNodesOfURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewInMemoryExporter()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		ctx := redlock.WithWrap(t.Context(), func(name string, node backend.Backend) backend.Backend {
			return tracing.Wrap(node, tracing.Store{Tracer: tp, Name: name})
		})
		tardy.Store(true)
		b, err := backend.Open(ctx, memURL(t, 2)+"&node="+url.QueryEscape("tardy://u:secret@host"))
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		asked := func() (names []string) {
			spans.Reset()
			ctx, attempt := tp.Tracer("test").Start(t.Context(), "attempt")
			c := claim("k")
			if _, err := b.TryAcquire(ctx, c); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			for _, s := range spans.GetSpans() {
				if s.Name == tracing.SpanStoreAcquire && s.Parent.SpanID() == attempt.SpanContext().SpanID() {
					for _, a := range s.Attributes {
						if a.Key == tracing.AttrStore {
							names = append(names, a.Value.AsString())
						}
					}
				}
			}
			attempt.End()
			_ = b.Release(t.Context(), c)
			synctest.Wait()
			slices.Sort(names)
			return names
		}
		want := []string{"mem://TestWrappedNodesOfURL.0", "mem://TestWrappedNodesOfURL.1", "tardy://host"}
		if got := asked(); !slices.Equal(got, want[:2]) {
			t.Errorf("asked %q, want %q", got, want[:2])
		}
		tardy.Store(false)
		time.Sleep(time.Minute) // in the bubble: until it has been tried again
		if got := asked(); !slices.Equal(got, want) {
			t.Errorf("asked %q, want %q", got, want)
		}
	})
}
