package tracing

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/locker"
)

// A hold is a lock from its grant to its end, and the ctx of what is done under it.
type hold struct {
	context.Context

	o     *Observer
	span  late
	class *class
	hold  locker.Hold
	lease locker.Lease

	late     bool // the span may be made later
	recorded bool // as far as is known
	moot     bool // it is not, and neither was its wait

	linked atomic.Bool // to whoever of another process is next, which is next; see Wrap
	next   trace.SpanContext
	passed time.Time // when the lease was handed on; told before end, by the same goroutine
	shared *lease    // that of lease.Traceparent, if it is recorded; notes guard it

	// When it is over:
	ended time.Time
	err   error
}

// Value implements [context.Context].
func (k *hold) Value(key any) any {
	if key == (opKey{}) {
		return k
	}
	return k.Context.Value(key)
}

// beginHold starts a hold's span beside its wait's: a child of the caller's span, or of the wait where the caller has none,
// so that it is in the same trace either way.
func (o *Observer) beginHold(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	w := waitOf(ctx)
	if w == nil {
		return ctx, ignore
	}
	k := &hold{o: o, class: w.class, hold: h, lease: w.lease}
	k.span = late{o: o, parent: ctx, name: SpanHold, class: w.class, began: w.ended}
	if w.outer.SpanContext().IsValid() {
		k.span.beside = w.outer
	}
	var span trace.Span = &k.span
	if w.holdSC.IsValid() && !o.promptly.Load() {
		k.span.sc, k.late, k.recorded = w.holdSC, true, w.holdSC.IsSampled()
		k.moot = w.guessed && !k.recorded
	} else {
		span = k.span.now(w.holdSC)
		k.recorded = span.IsRecording()
	}
	k.Context = trace.ContextWithSpan(ctx, span)
	o.blockers.held(h.Key, k.span.sc)
	k.class.holds.Add(1)
	if k.recorded {
		o.notes.add((*holdBegun)(k))
	}
	return k, k.end
}

// holdBegun notes that a hold has.
type holdBegun hold

func (begun *holdBegun) tell() {
	k := (*hold)(begun)
	span := k.span.real()
	if span.IsRecording() { // the sampler may have changed its mind
		k.describe(span)
		k.takeLease(span)
	}
}

func (k *hold) describe(span trace.Span) {
	attrs := append(make([]attribute.KeyValue, 0, 4), token(k.hold), AttrDeadline.String(k.lease.Until.Format(time.RFC3339Nano)))
	if k.lease.Passes > 0 {
		attrs = append(attrs, AttrPasses.Int(k.lease.Passes))
	}
	if k.o.cfg.ShowKeys {
		attrs = append(attrs, AttrKey.String(k.hold.Key))
	}
	span.SetAttributes(attrs...)
}

// takeLease links the hold with the span that stands for its lease, or makes it that span.
func (k *hold) takeLease(span trace.Span) {
	if k.lease.Traceparent == "" {
		return
	}
	l := k.o.leases.get(k.lease.Traceparent)
	if l == nil {
		l = &lease{span: span, hold: true}
		k.o.leases.put(k.lease.Traceparent, l)
	}
	k.shared = l
	l.use(span)
}

func (k *hold) end(_ locker.Hold, err error) {
	k.ended, k.err = time.Now(), err
	k.o.blockers.freed(k.hold.Key, k.span.sc, k.next)
	k.class.holds.Add(-1)
	k.o.notes.add((*holdOver)(k))
}

// holdOver notes that a hold is.
type holdOver hold

func (over *holdOver) tell() {
	k := (*hold)(over)
	passed, cause := !k.passed.IsZero(), causeOf(k.err)
	k.o.metrics.hold.Record(k.Context, k.ended.Sub(k.span.began).Seconds(), k.class.hold...)
	if passed {
		k.class.passes.Add(1)
	}
	if cause != "" {
		k.class.lost[cause].Add(1)
	}
	if k.moot {
		return
	}
	span := k.span.real()
	if !span.IsRecording() {
		return
	}
	if cause != "" {
		span.SetAttributes(AttrCause.String(cause))
		k.o.fail(span, k.hold.Key, cause, k.err)
	}
	if passed {
		span.AddEvent(EventPass, trace.WithTimestamp(k.passed))
		if k.shared != nil {
			k.shared.leave(span, k.ended)
			return
		}
	}
	span.End(trace.WithTimestamp(k.ended))
	if k.shared != nil {
		k.o.leases.over(k.lease.Traceparent, k.ended)
	}
}
