package tracing

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/locker"
)

// A lease is the span that a claim's traceparent names: what the store shows to those who wait in other processes. It is the
// lock.lease of an agent's errand, or the first hold. Either is sent when the last hold that used the lease is over, so that
// it can link to all of them; a hold is sent with the end that it had.
type lease struct {
	mu     sync.Mutex
	span   trace.Span
	hold   bool       // span is a hold
	ended  time.Time  // its own end, for a hold
	latest trace.Span // the hold that uses the lease
	left   time.Time  // when that handed it on; nobody has come after it yet, so it is not sent
}

// use makes hold the one that uses the lease. The one before, if there is one, has unblocked it.
func (l *lease) use(hold trace.Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sc := hold.SpanContext()
	if l.latest != nil {
		l.latest.AddLink(link(sc, LinkUnblocked))
		l.finish()
	}
	l.latest = hold
	if l.span != hold {
		l.span.AddLink(link(sc, LinkUsedBy))
		hold.AddLink(link(l.span.SpanContext(), LinkLease))
	}
}

// finish sends the latest hold if it has ended, unless it is the one that stands for the lease.
func (l *lease) finish() {
	if !l.left.IsZero() && l.latest != l.span {
		l.latest.End(trace.WithTimestamp(l.left))
	}
	l.left = time.Time{}
}

// leave ends a hold that handed the lease on. Its successor may have been quicker.
func (l *lease) leave(hold trace.Span, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if hold == l.span {
		l.ended = at
	}
	switch {
	case hold == l.latest:
		l.left = at
	case hold != l.span:
		hold.End(trace.WithTimestamp(at))
	}
}

// over ends the lease.
func (l *lease) over(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finish()
	if l.hold && !l.ended.IsZero() {
		at = l.ended
	}
	l.span.End(trace.WithTimestamp(at))
}

// leases are those of this process, by traceparent.
type leases struct {
	mu  sync.Mutex
	all map[string]*lease
}

func (ls *leases) put(traceparent string, l *lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.all == nil {
		ls.all = map[string]*lease{}
	}
	ls.all[traceparent] = l
}

// get returns a lease, or nil.
func (ls *leases) get(traceparent string) *lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.all[traceparent]
}

// over ends a lease that nobody uses any more, and does nothing if there is none.
func (ls *leases) over(traceparent string, at time.Time) {
	ls.mu.Lock()
	l := ls.all[traceparent]
	delete(ls.all, traceparent)
	ls.mu.Unlock()
	if l != nil {
		l.over(at)
	}
}

// An errand is what an agent does for the local line of a key.
type errand struct {
	o           *Observer
	span        trace.Span
	traceparent string
	class       *class
}

// beginErrand starts the span that stands for the lease to come. It belongs to the wait that sent the agent while that wait
// lasts; an agent that stays at work for others after that begins a trace of its own.
func (o *Observer) beginErrand(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	c := o.classes.class(h)
	opts := []trace.SpanStartOption{c.span}
	if sender := waitOf(ctx); sender != nil && sender.over.Load() {
		opts = append(opts, trace.WithNewRoot(), trace.WithLinks(link(sender.span.sc, LinkAsked)))
	}
	if o.cfg.ShowKeys {
		opts = append(opts, trace.WithAttributes(AttrKey.String(h.Key)))
	}
	ctx, span := o.tracer.Start(ctx, SpanLease, opts...)
	e := &errand{o: o, span: span, class: c}
	if span.SpanContext().IsSampled() {
		e.traceparent = traceparent(span.SpanContext())
		o.leases.put(e.traceparent, &lease{span: span})
	}
	ctx = context.WithValue(ctx, opKey{}, e)
	return locker.WithTraceparent(ctx, e.traceparent), e.end
}

// end is called when the store has granted, or the agent has given up. With a grant the lease begins.
func (e *errand) end(h locker.Hold, err error) {
	if err == nil {
		e.span.AddEvent(EventGranted, trace.WithAttributes(token(h)))
		return
	}
	result := resultOf(err)
	e.span.SetAttributes(AttrResult.String(result))
	e.o.fail(e.span, h.Key, result, err)
	e.o.leases.over(e.traceparent, time.Now())
}

func link(to trace.SpanContext, kind string) trace.Link {
	return trace.Link{SpanContext: to, Attributes: linkAttrs[kind]}
}
