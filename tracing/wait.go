package tracing

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// A wait is one Lock or TryLock. Its ctx carries it, to its attempts and to the hold that it becomes.
type wait struct {
	o     *Observer
	ctx   context.Context // with its span, for exemplars
	span  trace.Span
	outer trace.Span // the caller's
	class *class
	began time.Time
	key   string
	from  int // in blockers

	holdID trace.SpanID // the hold's, if it can be had
	over   atomic.Bool

	attempts int          // by itself; one at a time
	refused  bool         // one of them was
	lease    locker.Lease // what it got
}

func (o *Observer) beginWait(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	w := &wait{o: o, outer: trace.SpanFromContext(ctx), class: o.classes.class(h), began: time.Now(), key: h.Key}
	ctx, w.span = o.tracer.Start(ctx, SpanWait, w.class.span)
	if o.cfg.ShowKeys {
		w.span.SetAttributes(AttrKey.String(h.Key))
	}
	w.from = o.blockers.enter(h.Key)
	ctx = context.WithValue(ctx, opKey{}, w)
	w.ctx = locker.WithTraceparent(ctx, traceparent(w.identity()))
	w.class.waiters.Add(1)
	return w.ctx, w.end
}

// identity is the span that the claim names: the hold to come, which will be in the wait's trace, or else the wait itself. What
// is not sampled is not named, as nobody could look at it.
func (w *wait) identity() trace.SpanContext {
	sc := w.span.SpanContext()
	if !sc.IsSampled() {
		return trace.SpanContext{}
	}
	if !w.o.reserves() {
		return sc
	}
	w.holdID = newSpanID()
	return sc.WithSpanID(w.holdID)
}

func (w *wait) end(h locker.Hold, err error) {
	w.over.Store(true)
	blocked := w.o.blockers.leave(w.key, w.from)
	result, waited := resultOf(err), time.Since(w.began)
	// Without an attempt of its own it was in the local line.
	contended := w.refused || w.attempts == 0 && (err == nil || errors.Is(err, backend.ErrHeld))
	if w.span.IsRecording() {
		if contended || err != nil {
			for _, sc := range blocked {
				w.span.AddLink(link(sc, LinkBlockedBy))
			}
		}
		w.span.SetAttributes(AttrResult.String(result))
		if w.attempts != 1 {
			w.span.SetAttributes(AttrAttempts.Int(w.attempts))
		}
		w.o.fail(w.span, h, result, err)
	}
	w.class.waiters.Add(-1)
	w.o.metrics.wait.Record(w.ctx, waited.Seconds(), w.class.wait[result]...)
	w.class.acquisitions[result].Add(1)
	if contended {
		w.class.contended.Add(1)
	}
	w.span.End()
	if err != nil {
		w.o.report(w.ctx, h, result, err)
	}
}

// endAttempt takes note of an answer of the store.
func (o *Observer) endAttempt(ctx context.Context, h locker.Hold, err error) {
	w := waitOf(ctx)
	if w != nil {
		w.attempts++
		w.refused = w.refused || errors.Is(err, backend.ErrHeld)
	}
	var held *backend.HeldError
	if errors.As(err, &held) && held.Holder.Traceparent != "" && o.leases.get(held.Holder.Traceparent) == nil {
		if sc := parseTraceparent(held.Holder.Traceparent); sc.IsValid() {
			o.blockers.named(h.Key, sc)
		}
	}
	result := resultOf(err)
	if result == ResultQuarantined {
		o.classes.class(h).quarantined.Add(1)
		o.report(ctx, h, result, err)
	}
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() || err == nil && w != nil && w.attempts == 1 {
		return // granted at once: the span says it all
	}
	attrs := append(make([]attribute.KeyValue, 0, 5), AttrResult.String(result))
	name := EventAttempt
	if held != nil {
		attrs = append(attrs, holder(held.Holder)...)
		if held.Position > 0 {
			name, attrs = EventQueued, append(attrs, AttrPosition.Int(held.Position))
		}
	}
	span.AddEvent(name, trace.WithAttributes(attrs...))
}

func holder(m backend.Meta) []attribute.KeyValue {
	if m == (backend.Meta{}) {
		return nil
	}
	return []attribute.KeyValue{AttrHolderService.String(m.Service), AttrHolderHost.String(m.Host), AttrHolderPID.Int(m.PID)}
}

// opKey is where ctx has the innermost operation: a *wait, *errand or *hold.
type opKey struct{}

// waitOf returns the wait that ctx is directly in, or nil.
func waitOf(ctx context.Context) *wait {
	w, _ := ctx.Value(opKey{}).(*wait)
	return w
}

func holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(opKey{}).(*hold)
	return h
}
