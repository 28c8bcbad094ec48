package tracing_test

import (
	"context"
	"errors"
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

// A release that takes the next question along is one span. A store that cannot says so, and nothing was asked.
func TestWrapRelays(t *testing.T) {
	b := membackend.New()
	ended := backend.Claim{Key: "k", Owner: "me", TTL: time.Minute, Settled: true}
	next := backend.Claim{Key: "k", Owner: "next", TTL: time.Minute, Queue: true, Linger: time.Minute}
	if _, err := b.TryAcquire(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, b, setup{})
	w := tracing.Wrap(struct{ backend.Backend }{b}, tracing.Store{Tracer: p.tp})
	if released, _, err := backend.RelayOf(t.Context(), w, ended, next); !errors.Is(released, errors.ErrUnsupported) || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("of a store that cannot: %v, %v", released, err)
	}
	w = tracing.Wrap(b, tracing.Store{Tracer: p.tp})
	if released, g, err := backend.RelayOf(t.Context(), w, ended, next); released != nil || err != nil || g.Token == 0 {
		t.Errorf("%v, %+v, %v", released, g, err)
	}
	s := p.one(t, tracing.SpanStoreRelease)
	if op, result := attr(s.Attributes, tracing.AttrOperation), attr(s.Attributes, tracing.AttrResult); op != "Relay" || result != tracing.ResultConfirmed {
		t.Errorf("a span of %q with the result %q", op, result)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
