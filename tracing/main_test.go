package tracing_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A process is what one traced process has: a client, and where its spans and metrics go.
type process struct {
	*locker.Client[struct{}]
	obs    *tracing.Observer
	b      backend.Backend // the store, unwrapped
	tp     *sdktrace.TracerProvider
	spans  *tracetest.InMemoryExporter
	reader *metric.ManualReader
}

// A setup changes a process before it starts.
type setup struct {
	cfg     tracing.Config
	lock    locker.Config
	unseen  bool // no Wrap
	sampler sdktrace.Sampler
}

func startProcess(t *testing.T, b backend.Backend, s setup) *process {
	t.Helper()
	p := &process{b: b, spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader()}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithSyncer(p.spans)}
	if s.sampler != nil {
		opts = append(opts, sdktrace.WithSampler(s.sampler))
	}
	p.tp = sdktrace.NewTracerProvider(opts...)
	s.cfg.Tracer, s.cfg.Meter = p.tp, metric.NewMeterProvider(metric.WithReader(p.reader))
	obs, err := tracing.NewObserver(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.obs, s.lock.Observer = obs, obs
	s.lock.Classes = []string{"order-*", "user:*", "k*", "short"}
	if !s.unseen {
		b = tracing.Wrap(b, tracing.Store{Tracer: p.tp, System: "mem"})
	}
	if p.Client, err = locker.New(b, locker.Bare, s.lock); err != nil {
		t.Fatal(err)
	}
	return p
}

// bubble runs f in a synctest bubble with two processes on one store, and then looks whether they
// remember anything.
func bubble(t *testing.T, b func() backend.Backend, s setup,
	f func(t *testing.T, one, two *process),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := b()
		one, two := startProcess(t, store, s), startProcess(t, store, s)
		f(t, one, two)
		for _, p := range []*process{one, two} {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			if err := p.Shutdown(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
			cancel()
			if n := p.obs.Left(); n != 0 {
				t.Errorf("the observer remembers %d locks that are over", n)
			}
		}
	})
}

func (p *process) lock(t *testing.T, key string, opts ...locker.Option) *locker.Guard[struct{}] {
	t.Helper()
	g, err := p.Lock(t.Context(), key, opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", key, err)
	}
	return g
}

// ended returns all spans that have, in that order.
func (p *process) ended() tracetest.SpanStubs { return p.spans.GetSpans() }

// named returns the spans of a name, waits of all classes, in the order in which they ended.
func (p *process) named(name string) (all []tracetest.SpanStub) {
	for _, s := range p.ended() {
		if s.Name == name || name == tracing.SpanWait && strings.HasPrefix(s.Name, name+" ") {
			all = append(all, s)
		}
	}
	return all
}

// one returns the only span of a name.
func (p *process) one(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	all := p.named(name)
	if len(all) != 1 {
		t.Fatalf("%d spans %s, want 1", len(all), name)
	}
	return all[0]
}

// under returns the only span of a name whose parent is the one named by parent.
func (p *process) under(t *testing.T, parent, name string) tracetest.SpanStub {
	t.Helper()
	up := p.one(t, parent)
	var found []tracetest.SpanStub
	for _, s := range p.named(name) {
		if s.Parent.SpanID() == id(up) {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %s under %s, want 1", len(found), name, parent)
	}
	return found[0]
}

// event returns when something happened in a span.
func event(t *testing.T, s tracetest.SpanStub, name string) time.Time {
	t.Helper()
	for _, e := range s.Events {
		if e.Name == name {
			return e.Time
		}
	}
	t.Fatalf("%s has no event %s", s.Name, name)
	return time.Time{}
}

// links returns where the links of a kind lead to.
func links(s tracetest.SpanStub, kind string) (to []trace.SpanID) {
	for _, l := range s.Links {
		if attr(l.Attributes, tracing.AttrLink) == kind {
			to = append(to, l.SpanContext.SpanID())
		}
	}
	return to
}

// bars returns who is drawn below a wait, the longest first.
func (p *process) bars(wait tracetest.SpanStub) (all []tracetest.SpanStub) {
	for _, s := range p.ended() {
		if s.Parent.SpanID() == id(wait) && strings.HasPrefix(s.Name, tracing.SpanHeldBy) {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b tracetest.SpanStub) int {
		return cmp.Compare(b.EndTime.Sub(b.StartTime), a.EndTime.Sub(a.StartTime))
	})
	return all
}

// blockers returns where the links of the bars of a wait lead to, the longest first.
func (p *process) blockers(wait tracetest.SpanStub) (to []trace.SpanID) {
	for _, s := range p.bars(wait) {
		to = append(to, links(s, tracing.LinkBlockedBy)...)
	}
	return to
}

func idBytes(s tracetest.SpanStub) []byte { i := id(s); return i[:] }

func id(s tracetest.SpanStub) trace.SpanID { return s.SpanContext.SpanID() }

// attr returns an attribute as text, or "".
func attr(attrs []attribute.KeyValue, key attribute.Key) string {
	for _, a := range attrs {
		if a.Key == key {
			return text(a.Value)
		}
	}
	return ""
}

// events are a span's events, each with the attribute that tells most.
func events(s tracetest.SpanStub) (all []string) {
	for _, e := range s.Events {
		text := e.Name
		for _, key := range []attribute.Key{
			tracing.AttrReason, tracing.AttrResult,
			tracing.AttrPosition,
		} {
			if v := attr(e.Attributes, key); v != "" {
				text += " " + v
			}
		}
		all = append(all, text)
	}
	return all
}

// collected returns the metrics by name.
func (p *process) collected(t *testing.T) map[string]metricdata.Aggregation {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := p.reader.Collect(context.Background(), &rm); err != nil {
		t.Fatal(err)
	}
	all := map[string]metricdata.Aggregation{}
	for _, s := range rm.ScopeMetrics {
		for _, m := range s.Metrics {
			all[m.Name] = m.Data
		}
	}
	return all
}

// text is v as text, in every version of OpenTelemetry: the method of go.mod's is one that newer
// ones have deprecated.
func text(v attribute.Value) string { return fmt.Sprint(v.AsInterface()) }

// sum returns a counter's value where attribute key is value; key "" sums all.
func sum(a metricdata.Aggregation, key attribute.Key, value string) (n int64) {
	s, _ := a.(metricdata.Sum[int64])
	for _, p := range s.DataPoints {
		if v, _ := p.Attributes.Value(key); key == "" || text(v) == value {
			n += p.Value
		}
	}
	return n
}
