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
	on    *blocked // its key
	from  int      // in on

	guessed bool // the span is made later
	over    atomic.Bool

	attempts int          // by itself; one at a time
	refused  bool         // one of them was
	lease    locker.Lease // what it got
	hold     hold         // what it becomes, in one piece of memory. Its ids, if they can be had, and its key are there from the start

	// When it is over:
	ended   time.Time
	err     error
	blocked []trace.SpanContext // by whom
}

// Value implements [context.Context].
func (w *wait) Value(key any) any {
	switch {
	case key == (opKey{}):
		return w
	case spanKey != nil && key == spanKey:
		return w.span.shown()
	}
	return w.Context.Value(key)
}

func (o *Observer) beginWait(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	w := &wait{o: o, outer: trace.SpanFromContext(ctx)}
	w.hold.hold.Key = h.Key
	w.on, w.class, w.from = o.blockers.enter(h, o.classOf)
	w.span = late{Span: &noSpan, o: o, parent: ctx, name: SpanWait, attrs: w.class.span, began: time.Now()}
	w.start(ctx)
	w.Context = w.span.within(ctx)
	w.class.waiters.Add(1)
	return locker.WithTraceparent(w, w.identity()), w.end
}

// start makes the span of a wait: a later one if its ids can be reserved and it is known what the sampler will say.
func (w *wait) start(ctx context.Context) {
	o, ids, outer := w.o, w.o.ids(), w.outer.SpanContext()
	kind := kindOf(outer)
	sampled, sure := o.guesses.of(kind)
	if ids != nil && sure && !o.promptly.Load() {
		w.guessed, w.span.sc = true, ids.child(ctx, outer, sampled)
	} else {
		o.guesses.learn(kind, w.span.now(trace.SpanContext{}))
	}
	if ids != nil {
		w.hold.span.sc = w.span.sc.WithSpanID(newSpanID())
	}
}

// identity is the span that the claim names: the hold to come, which will be in the wait's trace, or else the wait itself. What
// is not sampled is not named, as nobody could look at it.
func (w *wait) identity() string {
	switch {
	case !w.span.sc.IsSampled():
		return ""
	case w.hold.span.sc.IsValid():
		return traceparent(w.hold.span.sc)
	}
	return traceparent(w.span.sc)
}

// end is followed by beginHold, which does the rest, if there is no error.
func (w *wait) end(h locker.Hold, err error) {
	w.over.Store(true)
	w.err, w.ended = err, time.Now()
	w.class.waiters.Add(-1)
	if err == nil {
		return
	}
	w.blocked = w.o.blockers.leave(w.on, w.from)
	w.o.notes.add((*waitOver)(w))
	w.o.report(w, h, resultOf(err), err)
}

// waitOver notes that a wait is.
type waitOver wait

func (over *waitOver) tell() {
	w := (*wait)(over)
	result := resultOf(w.err)
	// Without an attempt of its own it was in the local line.
	contended := w.refused || w.attempts == 0 && (w.err == nil || errors.Is(w.err, backend.ErrHeld))
	w.o.metrics.wait.Record(w, w.ended.Sub(w.span.began).Seconds(), w.class.wait[result]...)
	w.class.acquisitions[result].Add(1)
	if contended {
		w.class.contended.Add(1)
	}
	span, described := w.span.realWith(w.class.waited[result])
	if span.IsRecording() {
		if !described {
			span.SetAttributes(AttrResult.String(result))
		}
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
	if w.attempts != 1 {
		span.SetAttributes(AttrAttempts.Int(w.attempts))
	}
	if w.o.cfg.ShowKeys {
		span.SetAttributes(AttrKey.String(w.hold.hold.Key))
	}
	w.o.fail(span, w.hold.hold.Key, result, w.err)
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
		return op.span.o
	}
	return nil
}

func holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(opKey{}).(*hold)
	return h
}
