package tracing

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// opKey is where ctx has the *lock or *lease that it belongs to.
type opKey struct{}

// A lock is one Lock or TryLock, from the call to the end of the hold. Until the grant it is used
// by one goroutine at a time, and renewals leave it alone.
type lock struct {
	o           *Observer
	ctx         context.Context
	span        trace.Span
	traceparent string
	class       *class
	key         string
	began       time.Time

	attempts int     // with a claim of its own
	refused  bool    // one of them was
	waited   bool    // it had to wait
	named    blocker // by the last of them

	granted time.Time // zero until then
	on      *blocked  // its key, from then on
}

func (o *Observer) beginLock(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	l := &lock{o: o, class: o.classes.class(h), key: h.Key, began: time.Now()}
	ctx, l.span = o.tracer.Start(ctx, l.class.lock, l.class.span)
	if o.cfg.ShowKeys {
		l.span.SetAttributes(AttrKey.String(h.Key))
	}
	l.traceparent = traceparent(l.span.SpanContext())
	l.ctx = locker.WithTraceparent(context.WithValue(ctx, opKey{}, l), l.traceparent)
	return l.ctx, l.end
}

// contended reports whether the key was found held: by an attempt of its own, or by others of the
// cohort, which it joined without one.
func (l *lock) contended(err error) bool {
	return l.refused || l.waited && l.attempts == 0 && (err == nil || errors.Is(err, backend.ErrHeld))
}

// acquired counts what came of it.
func (l *lock) acquired(result string, now time.Time, err error) {
	l.o.metrics.wait.Record(l.ctx, now.Sub(l.began).Seconds(), l.class.wait[result]...)
	l.class.acquisitions[result].Add(1)
	if l.contended(err) {
		l.class.contended.Add(1)
	}
	if l.attempts > 1 {
		l.span.SetAttributes(AttrAttempts.Int(l.attempts))
	}
}

// grant is the beginning of the hold.
func (l *lock) grant(lease locker.Lease) {
	l.granted = time.Now()
	l.acquired(ResultGranted, l.granted, nil)
	l.class.holds.Add(1)
	sc, claim := l.span.SpanContext(), trace.SpanContext{}
	if lease.Claim.Traceparent != l.traceparent {
		claim = parseTraceparent(lease.Claim.Traceparent)
	}
	l.on = l.o.blockers.granted(l.key, sc, claim)
	if !l.span.IsRecording() {
		return
	}
	attrs := make([]attribute.KeyValue, 0, 4)
	attrs = append(attrs, AttrResult.String(ResultGranted), token(lease.Token),
		AttrDeadline.String(lease.Until.Format(time.RFC3339Nano)))
	if lease.Passes > 0 {
		attrs = append(attrs, AttrPasses.Int(lease.Passes))
	}
	l.span.SetAttributes(attrs...)
	l.span.AddEvent(EventGranted, trace.WithTimestamp(l.granted))
	addLink(l.span, claim, LinkLease)
	if span := l.o.leases.get(lease.Claim.Traceparent); span != nil {
		addLink(span, sc, LinkUsedBy)
	}
}

func (l *lock) end(h locker.Hold, err error) {
	now := time.Now()
	defer l.span.End(trace.WithTimestamp(now))
	if !l.granted.IsZero() {
		l.o.metrics.hold.Record(l.ctx, now.Sub(l.granted).Seconds(), l.class.hold...)
		l.class.holds.Add(-1)
		l.o.blockers.freed(l.key, l.on, l.span.SpanContext())
		if cause := causeOf(err); cause != "" {
			l.class.lost[cause].Add(1)
			l.span.SetAttributes(AttrCause.String(cause))
			l.o.fail(l.span, l.key, cause, err)
		}
		return
	}
	result := resultOf(err)
	l.acquired(result, now, err)
	l.o.report(l.ctx, h, result, err)
	l.span.SetAttributes(AttrResult.String(result))
	l.o.fail(l.span, l.key, result, err)
	if !l.waited { // else the wait tells
		blockedBy(l.span, l.named)
	}
}

// beginWait begins the part of a lock in which others are in its way.
func (o *Observer) beginWait(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	l, ok := ctx.Value(opKey{}).(*lock)
	if !ok {
		return ctx, ignore
	}
	l.waited = true
	l.class.waiters.Add(1)
	ctx, span := o.tracer.Start(ctx, SpanWait, l.class.span)
	on, from := o.blockers.enter(l.key, l.named)
	return ctx, func(_ locker.Hold, err error) {
		l.class.waiters.Add(-1)
		all := o.blockers.leave(l.key, on, from)
		if !span.IsRecording() {
			return
		}
		result := resultOf(err)
		span.SetAttributes(AttrResult.String(result))
		blockedBy(span, all...)
		o.fail(span, h.Key, result, err)
		span.End()
	}
}

// blockedBy says who was in the way: by links, and of the last one that was not sampled, to which a
// link would lead nowhere, by attributes.
func blockedBy(span trace.Span, all ...blocker) {
	var unsampled blocker
	for _, b := range all {
		if b.span.IsSampled() {
			addLink(span, b.span, LinkBlockedBy)
		} else {
			unsampled = b
		}
	}
	if unsampled.span.IsValid() {
		traceID := unsampled.span.TraceID().String()
		span.SetAttributes(append(holder(unsampled.meta), AttrHolderTrace.String(traceID))...)
	}
}

// endAttempt takes note of an answer of the store.
func (o *Observer) endAttempt(ctx context.Context, h locker.Hold, err error) {
	l, _ := ctx.Value(opKey{}).(*lock)
	if l != nil {
		l.attempts++
		if err == nil && l.attempts == 1 {
			return // granted at once: the span says it all
		}
	}
	var held *backend.HeldError
	if errors.As(err, &held) {
		named := blocker{parseTraceparent(held.Holder.Traceparent), held.Holder}
		if l != nil {
			l.refused, l.named = true, named
		}
		o.blockers.named(h.Key, named)
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
	name, attrs := EventAttempt, []attribute.KeyValue{AttrResult.String(result)}
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
	return []attribute.KeyValue{
		AttrHolderService.String(m.Service), AttrHolderHost.String(m.Host), AttrHolderPID.Int(m.PID),
	}
}

// A lease is what the process got for its cohort.
type lease struct {
	span    trace.Span
	granted bool
}

func (o *Observer) beginLease(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	l := &lease{}
	ctx, l.span = o.tracer.Start(ctx, SpanLease, o.classes.class(h).span)
	if o.cfg.ShowKeys {
		l.span.SetAttributes(AttrKey.String(h.Key))
	}
	traceparent := traceparent(l.span.SpanContext())
	o.leases.put(traceparent, l.span)
	ctx = locker.WithTraceparent(context.WithValue(ctx, opKey{}, l), traceparent)
	return ctx, func(h locker.Hold, err error) {
		o.leases.remove(traceparent)
		switch what := resultOf(err); {
		case !l.granted:
			l.span.SetAttributes(AttrResult.String(what))
			o.fail(l.span, h.Key, what, err)
		case err != nil:
			what = causeOf(err)
			l.span.SetAttributes(AttrCause.String(what))
			o.fail(l.span, h.Key, what, err)
		}
		l.span.End()
	}
}

func (l *lease) grant(got locker.Lease) {
	l.granted = true
	l.span.AddEvent(EventGranted, trace.WithAttributes(token(got.Token)))
}

// leases are the spans of those leases of this process that are not over, by traceparent, so that
// their holds can link.
type leases struct {
	mu  sync.Mutex
	all map[string]trace.Span
}

func (ls *leases) put(traceparent string, span trace.Span) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.all == nil {
		ls.all = map[string]trace.Span{}
	}
	ls.all[traceparent] = span
}

// get returns the span of a lease, or nil.
func (ls *leases) get(traceparent string) trace.Span {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.all[traceparent]
}

func (ls *leases) remove(traceparent string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.all, traceparent)
}

// beginRenewal makes a span of a renewal that fails, afterwards, or of every one if asked to.
func (o *Observer) beginRenewal(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	c, began := o.classes.class(h), time.Now()
	outer := ctx
	var span trace.Span
	if o.cfg.Renewals {
		ctx, span = o.tracer.Start(ctx, SpanRenew, c.span)
	}
	return ctx, func(h locker.Hold, err error) {
		result := renewalOf(err)
		c.renewals[result].Add(1)
		if span == nil && err != nil {
			_, span = o.tracer.Start(outer, SpanRenew, c.span, trace.WithTimestamp(began))
		}
		if span == nil {
			return
		}
		span.SetAttributes(AttrResult.String(result))
		o.fail(span, h.Key, result, err)
		span.End()
	}
}

// beginRelease makes a span of a release that fails, afterwards.
func (o *Observer) beginRelease(ctx context.Context) (context.Context, func(locker.Hold, error)) {
	began := time.Now()
	return ctx, func(h locker.Hold, err error) {
		l, _ := ctx.Value(opKey{}).(*lock)
		never := l == nil || l.granted.IsZero() // held, so that it is rightly unknown to the store
		result := renewalOf(err)
		if !failed(result) || never && result == ResultLost {
			return
		}
		_, span := o.tracer.Start(ctx, SpanRelease, o.classes.class(h).span, trace.WithTimestamp(began))
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

func token(t uint64) attribute.KeyValue {
	return AttrToken.Int64(int64(t)) //nolint:gosec // tokens are microseconds and counters, far below 2^63
}

// addLink adds a link, unless it would lead nowhere.
func addLink(span trace.Span, to trace.SpanContext, kind string) {
	if to.IsSampled() {
		span.AddLink(trace.Link{SpanContext: to, Attributes: linkAttrs[kind]})
	}
}

// linkAttrs are made once.
var linkAttrs = map[string][]attribute.KeyValue{
	LinkBlockedBy: {AttrLink.String(LinkBlockedBy)},
	LinkLease:     {AttrLink.String(LinkLease)},
	LinkUsedBy:    {AttrLink.String(LinkUsedBy)},
}
