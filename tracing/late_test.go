package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/tracing"
)

func names(spans tracetest.SpanStubs) (all []string) {
	for _, s := range spans {
		all = append(all, s.Name)
	}
	return all
}

// What has ended is told to the SDK by itself, soon, with the times at which it happened; and Close leaves nothing untold.
func TestToldLater(t *testing.T) {
	bubble(t, mem, setup{unseen: true}, func(t *testing.T, p, _ *process) {
		want := []string{tracing.SpanWait, tracing.SpanRelease, tracing.SpanHold}
		before := time.Now()
		_ = p.lock(t, "k").Unlock()
		after := time.Now()
		time.Sleep(tracing.PutOff)
		synctest.Wait()
		if got := names(p.spans.GetSpans()); !slices.Equal(got, want) {
			t.Errorf("by itself: %q", got)
		}
		for _, s := range p.spans.GetSpans() {
			if s.StartTime.Before(before) || s.EndTime.After(after) {
				t.Errorf("%s from %v to %v, and not within %v and %v", s.Name, s.StartTime, s.EndTime, before, after)
			}
		}
		p.spans.Reset()
		_ = p.lock(t, "k").Unlock()
		if h := p.collected(t)[tracing.MetricHold].(metricdata.Histogram[float64]); h.DataPoints[0].Count != 2 {
			t.Errorf("collected %d holds, want 2", h.DataPoints[0].Count)
		}
		p.spans.Reset()
		_ = p.lock(t, "k").Unlock()
		if err := p.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if got := names(p.spans.GetSpans()); !slices.Equal(got, want) {
			t.Errorf("after Close: %q", got)
		}
	})
}

// Who is quicker than the one who tells has to tell some himself: no memory without bound, and nothing is lost.
func TestMoreThanCanWait(t *testing.T) {
	bubble(t, mem, setup{unseen: true}, func(t *testing.T, p, _ *process) {
		const locks = tracing.MostNotes // each is several notes
		for range locks {               // in the bubble no time passes
			_ = p.lock(t, "k").Unlock()
		}
		if told := len(p.spans.GetSpans()); told < 3*locks-2*tracing.MostNotes {
			t.Errorf("%d spans told", told)
		}
		if all := names(p.ended()); len(all) != 3*locks || all[len(all)-1] != tracing.SpanHold {
			t.Errorf("%d spans of %d locks", len(all), locks)
		}
	})
}

// A span that the SDK does not know of yet is a span to whoever works under it.
func TestLateSpanIsASpan(t *testing.T) {
	bubble(t, mem, setup{unseen: true}, func(t *testing.T, p, _ *process) {
		g := p.lock(t, "k")
		span := trace.SpanFromContext(g.Context())
		if !span.IsRecording() || !span.SpanContext().IsSampled() || span.TracerProvider() != trace.TracerProvider(p.tp) {
			t.Error("not a span of the provider")
		}
		elsewhere := trace.Link{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{9}, SpanID: trace.SpanID{9}})}
		span.SetAttributes(tracing.AttrReason.String("mine"))
		span.AddEvent("mine")
		span.RecordError(errors.New("oops"))
		span.AddLink(elsewhere)
		span.SetStatus(codes.Error, "mine")
		span.SetName("mine")
		_ = g.Unlock()
		hold := p.one(t, "mine")
		if attr(hold.Attributes, tracing.AttrReason) != "mine" || attr(hold.Attributes, tracing.AttrToken) == "" || len(hold.Events) != 2 ||
			len(hold.Links) != 1 || hold.Status.Description != "mine" || id(hold) != span.SpanContext().SpanID() {
			t.Errorf("%+v", hold)
		}
		if span.AddEvent("late"); span.IsRecording() {
			t.Error("recording after its end")
		}
	})
}

// fickle samples everything until it is told to drop the spans of a name.
type fickle struct{ drops string }

func (f *fickle) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Name == f.drops {
		return sdktrace.NeverSample().ShouldSample(p)
	}
	return sdktrace.ParentBased(sdktrace.AlwaysSample()).ShouldSample(p)
}

func (f *fickle) Description() string { return "fickle" }

// A sampler that changes its mind is asked at once from then on: nothing is named or has children that is not there.
func TestFickleSampler(t *testing.T) {
	for _, drops := range []string{tracing.SpanWait, tracing.SpanHold, tracing.SpanRelease} {
		t.Run(drops, func(t *testing.T) {
			f := &fickle{}
			bubbleOnce(t, mem, setup{sampler: f}, func(t *testing.T, p, _ *process) {
				for range tracing.SureAfter + 2 {
					_ = p.lock(t, "k").Unlock()
				}
				if n := len(p.ended()); n != 5*(tracing.SureAfter+2) || p.obs.Prompt() {
					t.Errorf("%d spans, prompt: %v", n, p.obs.Prompt())
				}
				f.drops = drops
				_ = p.lock(t, "k").Unlock()
				if p.obs.Flush(); !p.obs.Prompt() {
					t.Error("does not learn")
				}
				p.spans.Reset()
				g := p.lock(t, "k")
				state, err := p.b.Inspect(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				_ = g.Unlock()
				there := map[string]bool{"": true, trace.SpanID{}.String(): true}
				for _, s := range p.ended() {
					there[id(s).String()] = true
				}
				for _, s := range p.ended() {
					if !there[s.Parent.SpanID().String()] {
						t.Errorf("%s has a parent that is not there", s.Name)
					}
				}
				if tp := state.Holders[0].Meta.Traceparent; drops != tracing.SpanHold && tp != "" && !there[tp[36:52]] {
					t.Errorf("the claim names %s, which is not there", tp)
				}
			})
		})
	}
}

// countedIDs are a vendor's.
type countedIDs struct{ n byte }

func (c *countedIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id := trace.TraceID{0: 0xfe}
	return id, c.NewSpanID(ctx, id)
}

func (c *countedIDs) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	c.n++
	return trace.SpanID{0: 0xfe, 7: c.n}
}

// The generator's own ids are used for spans that are made later, too.
func TestOtherIDs(t *testing.T) {
	bubble(t, mem, setup{unseen: true, ids: tracing.IDs{Otherwise: &countedIDs{}}}, func(t *testing.T, p, _ *process) {
		_ = p.lock(t, "k").Unlock()
		for _, s := range p.ended() {
			if s.SpanContext.TraceID() != (trace.TraceID{0: 0xfe}) {
				t.Errorf("%s is in trace %v", s.Name, s.SpanContext.TraceID())
			}
		}
		if wait := p.one(t, tracing.SpanWait); id(wait)[0] != 0xfe {
			t.Errorf("the wait is %v", id(wait))
		}
	})
}

// Parents of every kind are samplers' business: what is made of each is what the SDK makes of it.
func TestParents(t *testing.T) {
	remote := func(flags trace.TraceFlags) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{7}, SpanID: trace.SpanID{7}, TraceFlags: flags, Remote: true})
	}
	for _, parent := range []trace.SpanContext{{}, remote(0), remote(trace.FlagsSampled), remote(0).WithRemote(false), remote(trace.FlagsSampled).WithRemote(false)} {
		t.Run(fmt.Sprintf("%v,%v,%v", parent.IsValid(), parent.IsRemote(), parent.IsSampled()), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startProcess(t, membackend.New(), setup{unseen: true, sampler: sdktrace.ParentBased(sdktrace.AlwaysSample())})
				want := 3
				if parent.IsValid() && !parent.IsSampled() {
					want = 0
				}
				for i := range 2 * tracing.SureAfter {
					g, err := p.Lock(trace.ContextWithSpanContext(t.Context(), parent), "k")
					if err != nil {
						t.Fatal(err)
					}
					if got := trace.SpanContextFromContext(g.Context()); got.IsSampled() != (want > 0) || parent.IsValid() && got.TraceID() != parent.TraceID() {
						t.Errorf("lock %d is held under %+v", i, got)
					}
					_ = g.Unlock()
					if got := names(p.ended()); len(got) != want {
						t.Errorf("lock %d: %q", i, got)
					}
					p.spans.Reset()
				}
				if err := p.Shutdown(context.Background()); err != nil || p.obs.Prompt() || p.obs.Left() > 0 {
					t.Errorf("%v, prompt: %v, left: %d", err, p.obs.Prompt(), p.obs.Left())
				}
			})
		})
	}
}

// Keys that nobody uses any more are kept at hand, and only so many.
func TestIdleKeys(t *testing.T) {
	bubble(t, mem, setup{unseen: true}, func(t *testing.T, p, _ *process) {
		for range 2 {
			for i := range 2 * tracing.MostIdle {
				key := fmt.Sprint("k", i)
				g := p.lock(t, key)
				_ = p.lock(t, "beside").Unlock()
				_ = g.Unlock()
			}
		}
		if n := p.obs.IdleKeys(); n == 0 || n > tracing.MostIdle {
			t.Errorf("%d keys at hand, want up to %d", n, tracing.MostIdle)
		}
		for _, s := range p.ended() {
			if n := len(links(s, tracing.LinkBlockedBy)); n > 0 {
				t.Fatalf("%s has %d links, and nobody waited", s.Name, n)
			}
		}
	})
}

// A key at hand has forgotten who was in the way when it was used last: the hold of another process that nobody here waits for any more.
func TestIdleKeyForgets(t *testing.T) {
	bubble(t, mem, setup{unseen: true}, func(t *testing.T, one, two *process) {
		g := two.lock(t, "k")
		if _, err := one.TryLock(t.Context(), "k"); err == nil {
			t.Fatal("locked twice")
		}
		_ = g.Unlock()
		one.ended()
		one.spans.Reset()
		g = two.lock(t, "k") // another hold
		if _, err := one.TryLock(t.Context(), "k"); err == nil {
			t.Fatal("locked twice")
		}
		now := two.named(tracing.SpanWait)
		_ = g.Unlock()
		wait := one.one(t, tracing.SpanWait)
		hold := two.named(tracing.SpanHold)[len(now)-1]
		if got := links(wait, tracing.LinkBlockedBy); len(got) != 1 || got[0] != id(hold) {
			t.Errorf("linked to %v, want only the present hold %v", got, id(hold))
		}
	})
}
