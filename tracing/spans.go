package tracing

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/blame"
	"github.com/holdfast-go/holdfast/locker"
)

// opKey is where ctx has the *op that it belongs to.
type opKey struct{}

func opOf(ctx context.Context) *op {
	p, _ := ctx.Value(opKey{}).(*op)
	return p
}

// An op is something that has a span. Until the grant it is used by one goroutine at a time, and
// renewals leave it alone.
type op struct {
	o     *Observer
	lock  *lock // that it is, or belongs to; nil for an OpLease
	ctx   context.Context
	name  string
	class *class
	key   string
	began time.Time
	held  bool // an OpLease was granted

	span trace.Span // a *late one may never be made
}

// A late span keeps what it is to have until it turns out to be worth it, see Config.SpansOver.
type late struct {
	noop.Span
	todo []func(trace.Span)
}

func (*late) IsRecording() bool { return true }

func (s *late) SetAttributes(attrs ...attribute.KeyValue) {
	s.todo = append(s.todo, func(to trace.Span) { to.SetAttributes(attrs...) })
}

func (s *late) AddLink(l trace.Link) {
	s.todo = append(s.todo, func(to trace.Span) { to.AddLink(l) })
}

func (s *late) AddEvent(name string, opts ...trace.EventOption) {
	opts = append(opts, trace.WithTimestamp(time.Now()))
	s.todo = append(s.todo, func(to trace.Span) { to.AddEvent(name, opts...) })
}

func (p *op) begin(ctx context.Context) context.Context {
	p.began = time.Now()
	if p.o.cfg.SpansOver == 0 {
		ctx, p.span = p.o.tracer.Start(ctx, p.name, p.class.span...)
	} else {
		p.span = &late{}
	}
	p.ctx = ctx
	if p.o.cfg.ShowKeys {
		p.span.SetAttributes(AttrKey.String(p.key))
	}
	return context.WithValue(ctx, opKey{}, p)
}

// made returns the span. It makes a late one, under that of the lock if this is its wait.
func (p *op) made() trace.Span {
	put, isLate := p.span.(*late)
	if !isLate {
		return p.span
	}
	ctx := p.ctx
	if p.lock != nil && p != &p.lock.op {
		ctx = trace.ContextWithSpan(ctx, p.lock.made())
	}
	opts := append(slices.Clip(p.class.span), trace.WithTimestamp(p.began))
	_, p.span = p.o.tracer.Start(ctx, p.name, opts...)
	for _, do := range put.todo {
		do(p.span)
	}
	return p.span
}

// link adds a link, unless it would lead nowhere, and reports whether it did.
func (p *op) link(to trace.SpanContext, kind string, attrs ...attribute.KeyValue) bool {
	if to.IsSampled() {
		p.span.AddLink(trace.Link{SpanContext: to, Attributes: append(attrs, AttrLink.String(kind))})
	}
	return to.IsSampled()
}

// end ends the span, but for a late one that did not take long enough and did not go wrong.
func (p *op) end(took time.Duration, what string, err error) {
	wrong := err != nil && failed(what)
	if _, isLate := p.span.(*late); isLate && !wrong && took < p.o.cfg.SpansOver {
		return
	}
	span := p.made()
	if wrong {
		span.SetAttributes(AttrError.String(what))
		span.SetStatus(codes.Error, p.o.text(p.key, err))
	}
	span.End()
}

// A lock is one Lock or TryLock, from the call to the end of the hold.
type lock struct {
	op
	tells string // its claim: the traceparent of its own span or, if that is put off, of the caller's

	attempts int          // with a claim of its own
	refused  bool         // one of them was
	waited   bool         // it had to wait
	holder   backend.Meta // whom the last of them named

	hold blame.Hold // once it is granted
}

func (o *Observer) beginLock(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	l := &lock{op: op{o: o, class: o.class(h), key: h.Key}}
	l.lock, l.name = l, l.class.lock
	ctx = l.begin(ctx)
	l.tells = traceparent(l.named())
	return locker.WithTraceparent(ctx, l.tells), l.over
}

// named is the span that its claim names.
func (l *lock) named() trace.SpanContext { return trace.SpanContextFromContext(l.ctx) }

// acquired counts what came of it. The key was found held by an attempt of its own, or by others of
// the cohort, which it joined without one.
func (l *lock) acquired(result string, now time.Time, err error) {
	m, c, of := &l.o.metrics, l.class, l.class.granted
	if result != ResultGranted {
		of = c.with(AttrResult.String(result))
	}
	m.wait.Record(l.ctx, now.Sub(l.began).Seconds(), of)
	m.acquisitions.Add(l.ctx, 1, of)
	if l.refused || l.waited && l.attempts == 0 && (err == nil || errors.Is(err, backend.ErrHeld)) {
		m.contended.Add(l.ctx, 1, c.all)
	}
	if l.attempts > 1 {
		l.span.SetAttributes(AttrAttempts.Int(l.attempts))
	}
}

// grant is the beginning of the hold.
func (l *lock) grant(lease locker.Lease) {
	now := time.Now()
	l.acquired(ResultGranted, now, nil)
	l.hold = blame.Hold{Meta: lease.Claim, Token: lease.Token, Here: l, From: now}
	l.o.blame.Begin(l.key, &l.hold)
	if !l.span.IsRecording() {
		return
	}
	l.span.SetAttributes(AttrResult.String(ResultGranted), token(lease.Token),
		AttrDeadline.String(lease.Until.Format(time.RFC3339Nano)))
	if lease.Passes > 0 {
		l.span.SetAttributes(AttrPasses.Int(lease.Passes))
	}
	l.span.AddEvent(EventGranted)
	if lease.Claim.Traceparent != l.tells {
		l.link(parseTraceparent(lease.Claim.Traceparent), LinkLease)
	}
	if p, ok := l.o.leases.Load(lease.Claim.Traceparent); ok {
		p.(*op).link(l.named(), LinkUsedBy) //nolint:errcheck // nothing else is in it
	}
}

func (l *lock) over(_ locker.Hold, err error) {
	now := time.Now()
	if l.hold.Here == nil {
		result := resultOf(err, ResultGranted)
		l.acquired(result, now, err)
		l.span.SetAttributes(AttrResult.String(result))
		if l.refused && !l.waited { // else the wait tells
			l.blockedBy([]blame.Culprit{{Hold: blame.Hold{Meta: l.holder}}})
		}
		l.end(0, result, err)
		return
	}
	held := now.Sub(l.hold.From)
	l.o.metrics.hold.Record(l.ctx, held.Seconds(), l.class.all)
	if n := l.o.blame.End(&l.hold, now); n > 0 {
		l.span.SetAttributes(AttrWaiters.Int(n))
	}
	cause := causes.of(err)
	if cause != "" {
		l.o.metrics.lost.Add(l.ctx, 1, l.class.with(AttrCause.String(cause)))
		l.span.SetAttributes(AttrCause.String(cause))
	}
	l.end(held, cause, err)
}

// beginWait begins the part of a lock in which others are in its way.
func (l *lock) beginWait(ctx context.Context) (context.Context, func(locker.Hold, error)) {
	l.waited = true
	w := &op{o: l.o, lock: l, class: l.class, key: l.key, name: SpanWait}
	on := l.o.blame.Wait(l.key, l.holder, l)
	return w.begin(ctx), func(_ locker.Hold, err error) {
		now := time.Now()
		took, all, result := now.Sub(w.began), l.o.blame.Done(on, now), resultOf(err, ResultGranted)
		l.o.logWait(w, took, result, all)
		if w.span.IsRecording() {
			w.span.SetAttributes(AttrResult.String(result))
			w.blockedBy(all)
		}
		w.end(took, result, err)
	}
}

// blockedBy says who was in the way, the longest first: by a link or, of who was not sampled, to
// which a link would lead nowhere, by an event. The first is told in attributes as well, as not
// every viewer shows those of links.
func (p *op) blockedBy(all []blame.Culprit) {
	for i := range all {
		sc, attrs := culprit(&all[i])
		if i == 0 {
			p.span.SetAttributes(attrs...)
		}
		if !p.link(sc, LinkBlockedBy, attrs...) && len(attrs) > 0 {
			p.span.AddEvent(LinkBlockedBy, trace.WithAttributes(attrs...))
		}
	}
}

// culprit returns the span of who was in the way, and what is known of it.
func culprit(c *blame.Culprit) (sc trace.SpanContext, attrs []attribute.KeyValue) {
	sc = parseTraceparent(c.Meta.Traceparent)
	if l, ok := c.Here.(*lock); ok {
		sc = l.named()
	}
	attrs = append(make([]attribute.KeyValue, 0, 8), holder(c.Meta)...)
	if sc.IsValid() {
		attrs = append(attrs, AttrHolderTrace.String(sc.TraceID().String()))
	}
	if c.Token != 0 {
		attrs = append(attrs, AttrHolderToken.Int64(int64(c.Token))) //nolint:gosec // as in token
	}
	if c.For > 0 {
		attrs = append(attrs, AttrBlockedFor.Float64(c.For.Seconds()))
	}
	return sc, attrs
}

// attempted takes note of an answer of the store to the op's claim.
func (p *op) attempted(_ locker.Hold, err error) {
	l := p.lock
	if l != nil {
		l.attempts++
		if err == nil && l.attempts == 1 {
			return // granted at once: the span says it all
		}
	}
	var held *backend.HeldError
	if errors.As(err, &held) {
		if l != nil {
			l.refused, l.holder = true, held.Holder
		}
		p.o.blame.Named(p.key, held.Holder, nil)
	}
	result := resultOf(err, ResultGranted)
	if result == ResultQuarantined {
		p.o.metrics.quarantined.Add(p.ctx, 1, p.class.all)
	}
	if !p.span.IsRecording() {
		return
	}
	attrs := []attribute.KeyValue{AttrResult.String(result)}
	if held != nil {
		attrs = append(attrs, holder(held.Holder)...)
		if held.Position > 0 {
			attrs = append(attrs, AttrPosition.Int(held.Position))
		}
	}
	p.span.AddEvent(EventAttempt, trace.WithAttributes(attrs...))
}

func holder(m backend.Meta) []attribute.KeyValue {
	if m.Service == "" && m.Host == "" && m.PID == 0 {
		return nil
	}
	return []attribute.KeyValue{
		AttrHolderService.String(m.Service), AttrHolderHost.String(m.Host), AttrHolderPID.Int(m.PID),
	}
}

// beginLease begins what the process asks for on behalf of its cohort.
func (o *Observer) beginLease(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	p := &op{o: o, class: o.class(h), key: h.Key, name: SpanLease}
	ctx = p.begin(ctx)
	tells := traceparent(p.span.SpanContext())
	if tells != "" { // else it is late, and the claim has the caller's
		o.leases.Store(tells, p)
		ctx = locker.WithTraceparent(ctx, tells)
	}
	return ctx, func(_ locker.Hold, err error) {
		what, key := resultOf(err, ResultGranted), AttrResult
		if p.held {
			what, key = causes.of(err), AttrCause
		}
		if what != "" {
			p.span.SetAttributes(key.String(what))
		}
		o.leases.Delete(tells)
		p.end(0, what, err)
	}
}

// beginRequest counts renewals, and makes a span of a renewal or a release that fails.
func (o *Observer) beginRequest(ctx context.Context, what string) (context.Context, func(locker.Hold, error)) {
	began := time.Now()
	return ctx, func(h locker.Hold, err error) {
		result, name := resultOf(err, ResultConfirmed), SpanRelease
		if what == locker.OpRenew {
			name = SpanRenew
			o.metrics.renewals.Add(ctx, 1, o.class(h).with(AttrResult.String(result)))
		}
		if !failed(result) || name == SpanRelease && result == ResultLost {
			return // it went well, or the store knows of no hold: a lock tells that itself
		}
		p := &op{o: o, ctx: ctx, class: o.class(h), key: h.Key, name: name, began: began, span: &late{}}
		p.span.SetAttributes(AttrResult.String(result))
		p.end(0, result, err)
	}
}

func token(t uint64) attribute.KeyValue {
	return AttrToken.Int64(int64(t)) //nolint:gosec // tokens are microseconds and counters, far below 2^63
}

// traceparent is sc in the W3C form, or "" if it is not valid.
func traceparent(sc trace.SpanContext) string {
	to := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), sc), to)
	return to["traceparent"]
}

// parseTraceparent reads what another process wrote; what is not a traceparent is an invalid
// SpanContext.
func parseTraceparent(s string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": s})
	return trace.SpanContextFromContext(ctx)
}
