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

// A wait is one Lock or TryLock. It is the ctx of its attempts and of the hold that it becomes, which has its span.
type wait struct {
	context.Context

	o     *Observer
	span  late
	outer trace.Span // the caller's
	class *class
	key   string
	from  int // in blockers

	guessed bool              // the span is made later
	holdSC  trace.SpanContext // the hold's, if it can be had
	over    atomic.Bool

	attempts int          // by itself; one at a time
	refused  bool         // one of them was
	lease    locker.Lease // what it got

	// When it is over:
	ended   time.Time
	err     error
	blocked []trace.SpanContext // by whom
}

// Value implements [context.Context].
func (w *wait) Value(key any) any {
	if key == (opKey{}) {
		return w
	}
	return w.Context.Value(key)
}

func (o *Observer) beginWait(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	w := &wait{o: o, outer: trace.SpanFromContext(ctx), class: o.classes.class(h), key: h.Key}
	w.span = late{o: o, parent: ctx, name: SpanWait, class: w.class, began: time.Now()}
	w.Context = trace.ContextWithSpan(ctx, w.start(ctx))
	w.from = o.blockers.enter(h.Key)
	w.class.waiters.Add(1)
	return locker.WithTraceparent(w, w.identity()), w.end
}

// start returns a wait's span: a later one if its ids can be reserved and it is known what the sampler will say.
func (w *wait) start(ctx context.Context) trace.Span {
	o, ids, outer := w.o, w.o.ids(), w.outer.SpanContext()
	kind := kindOf(outer)
	sampled, sure := o.guesses.of(kind)
	var span trace.Span = &w.span
	if ids != nil && sure && !o.promptly.Load() {
		w.guessed, w.span.sc = true, ids.child(ctx, outer, sampled)
	} else {
		span = w.span.now(trace.SpanContext{})
		o.guesses.learn(kind, span)
	}
	if ids != nil {
		w.holdSC = w.span.sc.WithSpanID(newSpanID())
	}
	return span
}

// identity is the span that the claim names: the hold to come, which will be in the wait's trace, or else the wait itself. What
// is not sampled is not named, as nobody could look at it.
func (w *wait) identity() string {
	switch {
	case !w.span.sc.IsSampled():
		return ""
	case w.holdSC.IsValid():
		return traceparent(w.holdSC)
	}
	return traceparent(w.span.sc)
}

func (w *wait) end(h locker.Hold, err error) {
	w.over.Store(true)
	w.blocked = w.o.blockers.leave(w.key, w.from)
	w.err, w.ended = err, time.Now()
	w.class.waiters.Add(-1)
	w.o.notes.add((*waitOver)(w))
	if err != nil {
		w.o.report(w, h, resultOf(err), err)
	}
}

// waitOver notes that a wait is.
type waitOver wait

func (over *waitOver) tell() {
	w := (*wait)(over)
	result := resultOf(w.err)
	// Without an attempt of its own it was in the local line.
	contended := w.refused || w.attempts == 0 && (w.err == nil || errors.Is(w.err, backend.ErrHeld))
	w.o.metrics.wait.Record(w.Context, w.ended.Sub(w.span.began).Seconds(), w.class.wait[result]...)
	w.class.acquisitions[result].Add(1)
	if contended {
		w.class.contended.Add(1)
	}
	if span := w.span.real(); span.IsRecording() {
		w.describe(span, result, contended)
		span.End(trace.WithTimestamp(w.ended))
	}
}

func (w *wait) describe(span trace.Span, result string, contended bool) {
	if contended || w.err != nil {
		for _, sc := range w.blocked {
			span.AddLink(link(sc, LinkBlockedBy))
		}
	}
	attrs := append(make([]attribute.KeyValue, 0, 3), AttrResult.String(result))
	if w.attempts != 1 {
		attrs = append(attrs, AttrAttempts.Int(w.attempts))
	}
	if w.o.cfg.ShowKeys {
		attrs = append(attrs, AttrKey.String(w.key))
	}
	span.SetAttributes(attrs...)
	w.o.fail(span, w.key, result, w.err)
}

// endAttempt takes note of an answer of the store.
func (o *Observer) endAttempt(ctx context.Context, h locker.Hold, err error) {
	w := waitOf(ctx)
	if w != nil {
		w.attempts++
		w.refused = w.refused || errors.Is(err, backend.ErrHeld)
		if err == nil && w.attempts == 1 {
			return // granted at once: the span says it all
		}
	}
	var held *backend.HeldError
	if errors.As(err, &held) {
		o.named(h.Key, held.Holder.Traceparent)
	}
	result := resultOf(err)
	if result == ResultQuarantined {
		o.classes.class(h).quarantined.Add(1)
		o.report(ctx, h, result, err)
	}
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
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

// named takes note of whom the store has named as the holder, if that is another process: what this one holds is known.
func (o *Observer) named(key, traceparent string) {
	if traceparent == "" || o.ours(traceparent) {
		return
	}
	if sc := parseTraceparent(traceparent); sc.IsValid() {
		o.blockers.named(key, sc)
	}
}

// ours reports whether a claim's traceparent is of a lease that this process has.
func (o *Observer) ours(traceparent string) bool {
	o.notes.flush() // holds that began just now may be noted only
	return o.leases.get(traceparent) != nil
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

// observerOf returns whose operation ctx is in, or nil.
func observerOf(ctx context.Context) *Observer {
	switch op := ctx.Value(opKey{}).(type) {
	case *wait:
		return op.o
	case *errand:
		return op.o
	case *hold:
		return op.o
	}
	return nil
}

func holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(opKey{}).(*hold)
	return h
}
