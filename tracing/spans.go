package tracing

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/blame"
	"github.com/holdfast-go/holdfast/locker"
)

// opKey is where ctx has the *op that it belongs to.
type opKey struct{}

// An op is an OpLock, OpWait or OpLease with its span. With Config.SpansOver the span is made when
// it turns out to be worth it, and what it is to have is kept until then. Until the grant an op is
// used by one goroutine at a time, and renewals leave it alone.
type op struct {
	o     *Observer
	lock  *lock // that it is, or belongs to; nil for an OpLease
	ctx   context.Context
	name  string
	class *class
	key   string
	began time.Time
	held  bool // an OpLease was granted

	span   trace.Span // nil: not made yet
	attrs  []attribute.KeyValue
	links  []trace.Link
	events []event
}

type event struct {
	name string
	at   time.Time
	with []attribute.KeyValue
}

func (p *op) begin(ctx context.Context, h locker.Hold) context.Context {
	p.ctx, p.key, p.began = ctx, h.Key, time.Now()
	if p.o.cfg.SpansOver == 0 {
		p.ctx, p.span = p.o.tracer.Start(ctx, p.name, p.class.span)
	}
	if p.o.cfg.ShowKeys {
		p.set(AttrKey.String(h.Key))
	}
	return context.WithValue(p.ctx, opKey{}, p)
}

// makeSpan makes the span that was put off, under that of the lock if this is its wait.
func (p *op) makeSpan() {
	if p.span != nil {
		return
	}
	ctx := p.ctx
	if p.lock != nil && p != &p.lock.op {
		p.lock.makeSpan()
		ctx = trace.ContextWithSpan(ctx, p.lock.span)
	}
	_, p.span = p.o.tracer.Start(ctx, p.name, p.class.span, trace.WithTimestamp(p.began), trace.WithLinks(p.links...))
	p.set(p.attrs...)
	for _, e := range p.events {
		p.event(e.name, e.at, e.with...)
	}
}

func (p *op) recording() bool { return p.span == nil || p.span.IsRecording() }

func (p *op) set(attrs ...attribute.KeyValue) {
	if p.span != nil {
		p.span.SetAttributes(attrs...)
	} else {
		p.attrs = append(p.attrs, attrs...)
	}
}

func (p *op) event(name string, at time.Time, attrs ...attribute.KeyValue) {
	if p.span != nil {
		p.span.AddEvent(name, trace.WithTimestamp(at), trace.WithAttributes(attrs...))
	} else {
		p.events = append(p.events, event{name, at, attrs})
	}
}

// link adds a link, unless it would lead nowhere.
func (p *op) link(to trace.SpanContext, kind string, attrs ...attribute.KeyValue) {
	if !to.IsSampled() {
		return
	}
	l := trace.Link{SpanContext: to, Attributes: append(attrs, AttrLink.String(kind))}
	if p.span != nil {
		p.span.AddLink(l)
	} else {
		p.links = append(p.links, l)
	}
}

// end ends the span, if there is one by now or the op took long enough or went wrong.
func (p *op) end(now time.Time, took time.Duration, what string, err error) {
	wrong := err != nil && failed(what)
	if p.span == nil && !wrong && took < p.o.cfg.SpansOver {
		return
	}
	p.makeSpan()
	if wrong && p.span.IsRecording() {
		p.span.SetAttributes(AttrError.String(what))
		p.span.SetStatus(codes.Error, p.o.text(p.key, err))
	}
	p.span.End(trace.WithTimestamp(now))
}

// A lock is one Lock or TryLock, from the call to the end of the hold.
type lock struct {
	op
	named trace.SpanContext // what its claim says: its own span or, if that is put off, the caller's
	tells string            // the same as a traceparent

	attempts int          // with a claim of its own
	refused  bool         // one of them was
	waited   bool         // it had to wait
	holder   backend.Meta // whom the last of them named

	granted time.Time // zero until then
	hold    blame.Hold
}

func (o *Observer) beginLock(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	c := o.classes.class(h)
	l := &lock{op: op{o: o, class: c, name: c.lock}}
	l.lock = l
	ctx = l.begin(ctx, h)
	l.named = trace.SpanContextFromContext(ctx)
	l.tells = traceparent(l.named)
	return locker.WithTraceparent(ctx, l.tells), l.over
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
		l.set(AttrAttempts.Int(l.attempts))
	}
}

// grant is the beginning of the hold.
func (l *lock) grant(lease locker.Lease) {
	l.granted = time.Now()
	l.acquired(ResultGranted, l.granted, nil)
	l.class.holds.Add(1)
	l.hold = blame.Hold{Meta: lease.Claim, Token: lease.Token, Here: l}
	l.o.blame.Begin(l.key, &l.hold)
	if !l.recording() {
		return
	}
	attrs := make([]attribute.KeyValue, 0, 4)
	attrs = append(attrs, AttrResult.String(ResultGranted), token(lease.Token),
		AttrDeadline.String(lease.Until.Format(time.RFC3339Nano)))
	if lease.Passes > 0 {
		attrs = append(attrs, AttrPasses.Int(lease.Passes))
	}
	l.set(attrs...)
	l.event(EventGranted, l.granted)
	if lease.Claim.Traceparent != l.tells {
		l.link(parseTraceparent(lease.Claim.Traceparent), LinkLease)
	}
	if p, ok := l.o.leases.Load(lease.Claim.Traceparent); ok {
		p.(*op).link(l.named, LinkUsedBy) //nolint:errcheck // nothing else is in it
	}
}

func (l *lock) over(h locker.Hold, err error) {
	now := time.Now()
	if l.granted.IsZero() {
		result := resultOf(err)
		l.acquired(result, now, err)
		l.o.report(l.ctx, h, result, err)
		l.set(AttrResult.String(result))
		if l.refused && !l.waited { // else the wait tells
			l.blockedBy([]blame.Culprit{{Hold: blame.Hold{Meta: l.holder}}})
		}
		l.end(now, 0, result, err)
		return
	}
	held := now.Sub(l.granted)
	l.o.metrics.hold.Record(l.ctx, held.Seconds(), l.class.hold...)
	l.class.holds.Add(-1)
	if n := l.o.blame.End(&l.hold); n > 0 {
		l.set(AttrWaiters.Int(n))
	}
	cause := causeOf(err)
	if cause != "" {
		l.class.lost[cause].Add(1)
		l.set(AttrCause.String(cause))
	}
	l.end(now, held, cause, err)
}

// beginWait begins the part of a lock in which others are in its way.
func (o *Observer) beginWait(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	outer, ok := ctx.Value(opKey{}).(*op)
	if !ok || outer.lock == nil {
		return ctx, ignore
	}
	l := outer.lock
	l.waited = true
	l.class.waiters.Add(1)
	w := &op{o: o, lock: l, class: l.class, name: SpanWait}
	on := o.blame.Wait(l.key, l.holder, l.class)
	return w.begin(ctx, h), func(_ locker.Hold, err error) {
		now := time.Now()
		took, all, result := now.Sub(w.began), o.blame.Done(on), resultOf(err)
		l.class.waiters.Add(-1)
		o.logWait(w, took, result, all)
		if w.recording() {
			w.set(AttrResult.String(result))
			w.blockedBy(all)
			w.end(now, took, result, err)
		}
	}
}

// blockedBy says who was in the way, the longest first: by a link or, of who was not sampled, to
// which a link would lead nowhere, by an event. The first is told in attributes as well, as not
// every viewer shows those of links.
func (p *op) blockedBy(all []blame.Culprit) {
	for i := range all {
		sc, attrs := culprit(&all[i])
		if i == 0 {
			p.set(attrs...)
		}
		if sc.IsSampled() {
			p.link(sc, LinkBlockedBy, attrs...)
		} else if len(attrs) > 0 {
			p.event(LinkBlockedBy, time.Now(), attrs...)
		}
	}
}

// culprit returns the span of who was in the way, and what is known of it.
func culprit(c *blame.Culprit) (sc trace.SpanContext, attrs []attribute.KeyValue) {
	sc = parseTraceparent(c.Meta.Traceparent)
	if l, ok := c.Here.(*lock); ok {
		sc = l.named
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

// endAttempt takes note of an answer of the store.
func (o *Observer) endAttempt(ctx context.Context, h locker.Hold, err error) {
	p, _ := ctx.Value(opKey{}).(*op)
	if p != nil && p.lock != nil {
		p.lock.attempts++
		if err == nil && p.lock.attempts == 1 {
			return // granted at once: the span says it all
		}
	}
	var held *backend.HeldError
	if errors.As(err, &held) {
		if p != nil && p.lock != nil {
			p.lock.refused, p.lock.holder = true, held.Holder
		}
		o.blame.Named(h.Key, held.Holder)
	}
	result := resultOf(err)
	if result == ResultQuarantined {
		o.classes.class(h).quarantined.Add(1)
		o.report(ctx, h, result, err)
	}
	if p == nil || !p.recording() {
		return
	}
	name, attrs := EventAttempt, []attribute.KeyValue{AttrResult.String(result)}
	if held != nil {
		attrs = append(attrs, holder(held.Holder)...)
		if held.Position > 0 {
			name, attrs = EventQueued, append(attrs, AttrPosition.Int(held.Position))
		}
	}
	p.event(name, time.Now(), attrs...)
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
	p := &op{o: o, class: o.classes.class(h), name: SpanLease}
	ctx = p.begin(ctx, h)
	tells := ""
	if p.span != nil { // else the claim has the caller's
		tells = traceparent(p.span.SpanContext())
		o.leases.Store(tells, p)
		ctx = locker.WithTraceparent(ctx, tells)
	}
	return ctx, func(h locker.Hold, err error) {
		what := resultOf(err)
		switch {
		case !p.held:
			p.set(AttrResult.String(what))
		case err != nil:
			what = causeOf(err)
			p.set(AttrCause.String(what))
		}
		o.leases.Delete(tells)
		p.end(time.Now(), 0, what, err)
	}
}

// beginRenewal counts renewals, and makes a span of one that fails.
func (o *Observer) beginRenewal(ctx context.Context, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	p := &op{o: o, ctx: ctx, key: h.Key, class: o.classes.class(h), name: SpanRenew, began: time.Now()}
	return ctx, func(_ locker.Hold, err error) {
		result := renewalOf(err)
		p.class.renewals[result].Add(1)
		if err != nil {
			p.set(AttrResult.String(result))
			p.end(time.Now(), o.cfg.SpansOver, result, err)
		}
	}
}

// beginRelease makes a span of a release that fails.
func (o *Observer) beginRelease(ctx context.Context) (context.Context, func(locker.Hold, error)) {
	began := time.Now()
	return ctx, func(h locker.Hold, err error) {
		outer, _ := ctx.Value(opKey{}).(*op)
		held := outer != nil && outer.lock != nil && !outer.lock.granted.IsZero()
		result := renewalOf(err)
		if !failed(result) || !held && result == ResultLost { // the store rightly knows of no such hold
			return
		}
		p := &op{o: o, ctx: ctx, key: h.Key, class: o.classes.class(h), name: SpanRelease, began: began}
		p.set(AttrResult.String(result))
		p.end(time.Now(), o.cfg.SpansOver, result, err)
	}
}

func token(t uint64) attribute.KeyValue {
	return AttrToken.Int64(int64(t)) //nolint:gosec // tokens are microseconds and counters, far below 2^63
}
