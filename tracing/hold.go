package tracing

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/locker"
)

// A hold is a lock from its grant to its end.
type hold struct {
	o     *Observer
	ctx   context.Context
	span  trace.Span
	class *class
	began time.Time
	key   string
	lease locker.Lease

	shared *lease      // that of lease.Traceparent, if it is recorded
	linked atomic.Bool // to whoever of another process is next, which is next; see Wrap
	next   trace.SpanContext
	passed bool // told before end, by the same goroutine
}

// beginHold starts a hold's span beside its wait's: a child of the caller's span, or of the wait where the caller has none,
// so that it is in the same trace either way.
func (o *Observer) beginHold(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	w := waitOf(ctx)
	if w == nil {
		return ctx, ignore
	}
	k := &hold{o: o, class: w.class, began: time.Now(), key: h.Key, lease: w.lease}
	outer := ctx
	if w.outer.SpanContext().IsValid() {
		outer = trace.ContextWithSpan(ctx, w.outer)
	}
	if w.holdID.IsValid() {
		k.span = startAs(outer, o.tracer, w.holdID, SpanHold, w.class.span)
		if k.span.SpanContext().SpanID() != w.holdID {
			o.reserving.Store(reservesNot) // the provider was replaced
		}
	} else {
		_, k.span = o.tracer.Start(outer, SpanHold, w.class.span)
	}
	k.describe(h)
	k.takeLease()
	o.blockers.held(h.Key, k.span.SpanContext())
	k.ctx = context.WithValue(trace.ContextWithSpan(ctx, k.span), opKey{}, k)
	k.class.holds.Add(1)
	return k.ctx, k.end
}

func (k *hold) describe(h locker.Hold) {
	if !k.span.IsRecording() {
		return
	}
	attrs := append(make([]attribute.KeyValue, 0, 4), token(h), AttrDeadline.String(k.lease.Until.Format(time.RFC3339Nano)))
	if k.lease.Passes > 0 {
		attrs = append(attrs, AttrPasses.Int(k.lease.Passes))
	}
	if k.o.cfg.ShowKeys {
		attrs = append(attrs, AttrKey.String(h.Key))
	}
	k.span.SetAttributes(attrs...)
}

// takeLease links the hold with the span that stands for its lease, or makes it that span.
func (k *hold) takeLease() {
	if !k.span.IsRecording() || k.lease.Traceparent == "" {
		return
	}
	l := k.o.leases.get(k.lease.Traceparent)
	if l == nil {
		l = &lease{span: k.span, hold: true}
		k.o.leases.put(k.lease.Traceparent, l)
	}
	k.shared = l
	l.use(k.span)
}

func (k *hold) end(h locker.Hold, err error) {
	ended := time.Now()
	k.o.blockers.freed(k.key, k.span.SpanContext(), k.next)
	k.class.holds.Add(-1)
	k.o.metrics.hold.Record(k.ctx, ended.Sub(k.began).Seconds(), k.class.hold...)
	if k.passed {
		k.class.passes.Add(1)
	}
	if cause := causeOf(err); cause != "" {
		k.class.lost[cause].Add(1)
		k.span.SetAttributes(AttrCause.String(cause))
		k.o.fail(k.span, h, cause, err)
	}
	switch {
	case k.shared == nil: // not recorded
	case k.passed:
		k.shared.leave(k.span, ended)
	default:
		k.span.End()
		k.o.leases.over(k.lease.Traceparent, ended)
	}
}
