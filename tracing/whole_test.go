package tracing_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/tracing"
)

type margin struct{}

func (margin) Margin(backend.Claim) int { return 2 }

// starts is a store that can be asked without waiting; here it answers at once.
type starts struct{ b backend.Backend }

func (s starts) Start(ctx context.Context, _ time.Duration, v backend.Verb, c backend.Claim, done func(backend.Grant, error)) {
	done(v.Do(ctx, s.b, c))
}

// What is wrapped stays what it is beside a Backend, no more and no less: a guard tells the margin of a quorum that is wrapped as a whole,
// and a quorum of wrapped nodes needs no goroutine for each question.
func TestWrapIsWhole(t *testing.T) {
	b := membackend.New()
	for i, inner := range []backend.Backend{
		b,
		struct {
			backend.Backend
			margin
		}{b, margin{}},
		struct {
			backend.Backend
			starts
		}{b, starts{b}},
		struct {
			backend.Backend
			margin
			starts
		}{b, margin{}, starts{b}},
	} {
		p := startProcess(t, inner, setup{})
		w := tracing.Wrap(inner, tracing.Store{Tracer: p.tp})
		marginer, isMarginer := w.(backend.Marginer)
		starter, isStarter := w.(backend.Starter)
		if isMarginer != (i%2 == 1) || isStarter != (i/2 == 1) {
			t.Errorf("%d: margin: %v, start: %v", i, isMarginer, isStarter)
		}
		g := p.lock(t, "k")
		if n, ok := g.Margin(); ok != isMarginer || ok && (n != 2 || marginer.Margin(backend.Claim{}) != 2) {
			t.Errorf("%d: margin %d, %v", i, n, ok)
		}
		_ = g.Unlock()
		for name, want := range map[string]string{tracing.SpanStoreAcquire: tracing.ResultGranted, tracing.SpanStoreRelease: tracing.ResultConfirmed} {
			if got := attr(p.one(t, name).Attributes, tracing.AttrResult); got != want {
				t.Errorf("%d: %s is %q, want %q", i, name, got, want)
			}
		}
		p.spans.Reset()
		if isStarter {
			claim := backend.Claim{Key: fmt.Sprint("started", i), Owner: "me", TTL: time.Minute}
			for v, name := range map[backend.Verb]string{
				backend.Acquire: tracing.SpanStoreAcquire, backend.Renew: tracing.SpanStoreRenew, backend.Release: tracing.SpanStoreRelease,
			} {
				ctx, outer := p.tp.Tracer("test").Start(t.Context(), "outer")
				answers := 0
				starter.Start(ctx, time.Second, v, claim, func(backend.Grant, error) { answers++ })
				if s := p.one(t, name); answers != 1 || s.Parent.SpanID() != outer.SpanContext().SpanID() {
					t.Errorf("%s: %d answers, under %v", name, answers, s.Parent)
				}
			}
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
