package tracing

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/locker"
)

// An Observer is a [locker.EventObserver] that makes spans and metrics of what happens to locks. One is enough for all clients
// of a program whose keys mean the same; clients with different namespaces and equal keys should have one each, as waits are
// matched with holders by key.
type Observer struct {
	cfg       Config
	tracer    trace.Tracer
	metrics   metrics
	classes   classes
	classOf   func(locker.Hold) *class // of classes
	blockers  blockers
	leases    leases
	notes     notes
	reserving atomic.Int32
	generator atomic.Pointer[IDs] // if it honours reservations
	guesses   guesses
	promptly  atomic.Bool // spans are not put off: the sampler was foretold wrongly once
	reported  reported
}

// What is known of whether the provider honours reserved ids.
const (
	reservesUnknown = iota
	reservesYes
	reservesNot
)

// NewObserver returns an Observer, for locker.Config.Observer. The error is the meter provider's.
func NewObserver(cfg Config) (*Observer, error) {
	cfg = cfg.withDefaults()
	o := &Observer{cfg: cfg, tracer: cfg.Tracer.Tracer(scope)}
	o.classes.of, o.classOf = cfg.KeyClass, o.classes.class
	var err error
	if o.metrics, err = newMetrics(cfg.Meter.Meter(scope), o); err != nil {
		return nil, err
	}
	return o, nil
}

// ids returns what generates ids and honours reservations, so that a hold can be named before it exists, or nil. It is found
// out with the first wait, as a program may set the global provider after it has made its Observer.
func (o *Observer) ids() *IDs {
	switch o.reserving.Load() {
	case reservesYes:
		return o.generator.Load()
	case reservesNot:
		return nil
	}
	g := generator(o.tracer)
	if g == nil {
		o.reserving.CompareAndSwap(reservesUnknown, reservesNot)
		return nil
	}
	o.generator.Store(g)
	o.reserving.CompareAndSwap(reservesUnknown, reservesYes)
	return g
}

func ignore(locker.Hold, error) {}

// Begin implements [locker.Observer].
func (o *Observer) Begin(ctx context.Context, op string, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	switch op {
	case locker.OpWait:
		return o.beginWait(ctx, h)
	case locker.OpErrand:
		return o.beginErrand(ctx, h)
	case locker.OpAttempt:
		return ctx, func(h locker.Hold, err error) { o.endAttempt(ctx, h, err) }
	case locker.OpHold:
		return o.beginHold(ctx, h)
	case locker.OpRenew:
		return o.beginRenewal(ctx, h)
	case locker.OpRelease:
		return o.beginRelease(ctx)
	}
	return ctx, ignore
}

// Flush tells the tracer and meter providers of everything that has ended so far. That happens by itself within milliseconds,
// before each collection of metrics, and when a client is closed. So it is needed only by who shuts the tracer provider down,
// or flushes it, while clients are open. It asks nobody over a network.
func (o *Observer) Flush() { o.notes.flush() }

// Event implements [locker.EventObserver].
func (o *Observer) Event(ctx context.Context, e locker.Event) {
	switch e.Kind {
	case locker.EventWake:
		if span := trace.SpanFromContext(ctx); span.IsRecording() {
			span.AddEvent(EventWake, trace.WithAttributes(AttrReason.String(e.Reason)))
		}
	case locker.EventGrant:
		if w := waitOf(ctx); w != nil {
			w.lease = e.Lease
		}
	case locker.EventPass:
		if k := holdOf(ctx); k != nil {
			k.passed = time.Now()
		}
	case locker.EventDrop:
		o.Flush() // those who used it
		o.leases.over(e.Lease.Traceparent, time.Now())
	case locker.EventClose:
		o.Flush()
	}
}

// beginRenewal makes a span of a renewal that fails, afterwards, or of every one if asked to.
func (o *Observer) beginRenewal(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	c, began := o.classes.class(h), trace.WithTimestamp(time.Now())
	var span trace.Span
	if o.cfg.Renewals {
		ctx, span = o.tracer.Start(ctx, SpanRenew, c.span, began)
	}
	return ctx, func(h locker.Hold, err error) {
		result := renewalOf(err)
		c.renewals[result].Add(1)
		if span == nil && err != nil {
			_, span = o.tracer.Start(ctx, SpanRenew, c.span, began)
		}
		if span == nil {
			return
		}
		span.SetAttributes(AttrResult.String(result))
		o.fail(span, h.Key, result, err)
		span.End()
	}
}

// fail marks a span whose operation went wrong.
func (o *Observer) fail(span trace.Span, key, what string, err error) {
	if err == nil || !failed(what) || !span.IsRecording() {
		return
	}
	span.SetAttributes(AttrError.String(what))
	span.SetStatus(codes.Error, o.text(key, err))
}

// text is what err says, without the key unless keys are shown.
func (o *Observer) text(key string, err error) string {
	if o.cfg.ShowKeys {
		return err.Error()
	}
	return withoutKey(err.Error(), key)
}

func withoutKey(text, key string) string {
	const telling = 4 // bytes; what is shorter also stands in words that have nothing to do with the key
	if len(key) < telling {
		return text
	}
	return strings.ReplaceAll(text, key, "…")
}

func token(h locker.Hold) attribute.KeyValue {
	return AttrToken.Int64(int64(h.Token)) //nolint:gosec // tokens are milliseconds and counters, far below 2^63
}

// linkAttrs are made once.
var linkAttrs = func() map[string][]attribute.KeyValue {
	m := map[string][]attribute.KeyValue{}
	for _, kind := range []string{LinkBlockedBy, LinkUnblocked, LinkLease, LinkUsedBy, LinkAsked} {
		m[kind] = []attribute.KeyValue{AttrLink.String(kind)}
	}
	return m
}()
