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

	wait *wait // that it was
	span late
	hold locker.Hold

	late     bool // the span may be made later
	recorded bool // as far as is known
	moot     bool // it is not, and neither was its wait

	linked atomic.Bool // to whoever of another process is next, which is next; see Wrap
	next   *trace.SpanContext
	passed time.Time // when the lease was handed on; told before end, by the same goroutine
	shared *lease    // that of lease.Traceparent, if it is recorded; notes guard it

	// When it is over:
	ended time.Time
	err   error
}

// Value implements [context.Context].
func (k *hold) Value(key any) any {
	switch {
	case key == (opKey{}):
		return k
	case spanKey != nil && key == spanKey:
		return k.span.shown()
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
	k := &w.hold
	k.wait, k.hold = w, h
	reserved := k.span.sc
	k.span = late{Span: &noSpan, o: o, sc: reserved, parent: ctx, name: SpanHold, attrs: w.class.span, began: w.ended}
	if w.outer.SpanContext().IsValid() {
		k.span.beside = w.outer
	}
	if reserved.IsValid() && !o.promptly.Load() {
		k.late, k.recorded = true, reserved.IsSampled()
		k.moot = w.guessed && !k.recorded
	} else {
		k.recorded = k.span.now(reserved).IsRecording()
	}
	k.Context = k.span.within(ctx)
	w.blocked = o.blockers.granted(w.on, w.from, k.span.sc)
	w.class.holds.Add(1)
	o.notes.add((*holdBegun)(k))
	return k, k.end
}

// holdBegun notes that a hold has, and that its wait is over.
type holdBegun hold

func (begun *holdBegun) tell() {
	k := (*hold)(begun)
	(*waitOver)(k.wait).tell()
	if !k.recorded {
		return
	}
	attrs := k.attributes()
	span, have := k.span.realWith(trace.WithAttributes(attrs...))
	if span.IsRecording() { // the sampler may have changed its mind
		if !have {
			span.SetAttributes(attrs...)
		}
		k.takeLease(span)
	}
}

func (k *hold) attributes() []attribute.KeyValue {
	lease, class := &k.wait.lease, k.wait.class
	attrs := append(append(make([]attribute.KeyValue, 0, 6), class.attrs...),
		token(k.hold), AttrDeadline.String(lease.Until.Format(time.RFC3339Nano)))
	if lease.Passes > 0 {
		attrs = append(attrs, AttrPasses.Int(lease.Passes))
	}
	if k.span.o.cfg.ShowKeys {
		attrs = append(attrs, AttrKey.String(k.hold.Key))
	}
	return attrs
}

// takeLease links the hold with the span that stands for its lease, or makes it that span.
func (k *hold) takeLease(span trace.Span) {
	if k.wait.lease.Traceparent == "" {
		return
	}
	l := k.span.o.leases.get(k.wait.lease.Traceparent)
	if l == nil {
		l = &lease{span: span, hold: true}
		k.span.o.leases.put(k.wait.lease.Traceparent, l)
	}
	k.shared = l
	l.use(span)
}

func (k *hold) end(_ locker.Hold, err error) {
	k.ended, k.err = time.Now(), err
	k.span.o.blockers.freed(k.wait.on, k.span.sc, k.next)
	k.wait.class.holds.Add(-1)
	k.span.o.notes.add((*holdOver)(k))
}

// holdOver notes that a hold is.
type holdOver hold

func (over *holdOver) tell() {
	k := (*hold)(over)
	passed, cause := !k.passed.IsZero(), causeOf(k.err)
	k.span.o.metrics.hold.Record(k, k.ended.Sub(k.span.began).Seconds(), k.wait.class.hold...)
	if passed {
		k.wait.class.passes.Add(1)
	}
	if cause != "" {
		k.wait.class.lost[cause].Add(1)
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
		k.span.o.fail(span, k.hold.Key, cause, k.err)
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
		k.span.o.leases.over(k.wait.lease.Traceparent, k.ended)
	}
}
