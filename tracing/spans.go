package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
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

	holder backend.Meta // whom the last refusal named
	last   uint64       // and the last token of the key by then
	span   trace.Span   // a *deferredSpan may never be made
}

// A deferredSpan buffers attributes, links and events until Config.SpansOver is exceeded.
type deferredSpan struct {
	noop.Span
	mu   sync.Mutex // an event may come beside what the lock's own goroutine does
	todo []func(trace.Span)
}

func (s *deferredSpan) later(do func(trace.Span)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.todo = append(s.todo, do)
}

func (*deferredSpan) IsRecording() bool { return true }

func (s *deferredSpan) SetAttributes(attrs ...attribute.KeyValue) {
	s.later(func(to trace.Span) { to.SetAttributes(attrs...) })
}

func (s *deferredSpan) AddLink(l trace.Link) {
	s.later(func(to trace.Span) { to.AddLink(l) })
}

func (s *deferredSpan) AddEvent(name string, opts ...trace.EventOption) {
	opts = append(opts, trace.WithTimestamp(time.Now()))
	s.later(func(to trace.Span) { to.AddEvent(name, opts...) })
}

func (p *op) begin(ctx context.Context) context.Context {
	p.began = time.Now()
	if p.o.cfg.SpansOver == 0 {
		ctx, p.span = p.o.tracer.Start(ctx, p.name, p.class.span...)
	} else {
		p.span = &deferredSpan{}
	}
	p.ctx = ctx
	if p.o.cfg.ShowKeys {
		p.span.SetAttributes(AttrKey.String(p.key))
	}
	return context.WithValue(ctx, opKey{}, p) // safeguard: traced-context
}

// made returns the span. It makes a deferred one, under that of the lock if this is its wait.
func (p *op) made() trace.Span {
	put, isDeferred := p.span.(*deferredSpan)
	if !isDeferred {
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

// link adds a link, unless it would lead nowhere.
func (p *op) link(to trace.SpanContext, kind string) {
	if to.IsSampled() {
		p.span.AddLink(trace.Link{
			SpanContext: to,
			Attributes:  []attribute.KeyValue{AttrLink.String(kind)},
		})
	}
}

// end ends the span, but for a deferred one that did not take long enough and did not go wrong.
func (p *op) end(took time.Duration, what string, err error) {
	wrong := err != nil && failed(what)
	// safeguard: spans-wrong
	if _, isDeferred := p.span.(*deferredSpan); isDeferred && !wrong && took < p.o.cfg.SpansOver {
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
	alone bool // it is exclusive
	// its claim: the traceparent of its own span or, if that is put off, of the caller's
	tells string

	attempts int  // with a claim of its own
	refused  bool // one of them was
	waited   bool // it had to wait
	passed   bool // and then a lease was handed on to it

	hold  blame.Hold // once it is granted
	queue int        // how many claims waited at the store when it was released
}

func (o *Observer) beginLock(ctx context.Context,
	h locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	l := &lock{op: op{o: o, class: o.class(h), key: h.Key}, alone: h.Mode == backend.Exclusive}
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
	m, c := &l.o.metrics, l.class
	of, waits := c.granted, c.free
	contended := l.refused || l.waited && l.attempts == 0 &&
		(err == nil || errors.Is(err, backend.ErrHeld))
	if contended {
		m.contended.Add(l.ctx, 1, c.all)
		waits = c.held
	}
	if result != ResultGranted {
		of = c.with(AttrResult.String(result))
		waits = c.with(AttrResult.String(result), AttrContended.Bool(contended))
	}
	m.wait.Record(l.ctx, now.Sub(l.began).Seconds(), waits)
	m.acquisitions.Add(l.ctx, 1, of)
	if l.attempts > 1 {
		l.span.SetAttributes(AttrAttempts.Int(l.attempts))
	}
}

// grant is the beginning of the hold.
func (l *lock) grant(lease locker.Lease) {
	now := time.Now()
	l.acquired(ResultGranted, now, nil)
	if lease.TookOver != 0 {
		l.o.metrics.takenOver.Add(l.ctx, 1, l.class.all)
		//nolint:gosec // as in token
		l.span.SetAttributes(AttrTakenOver.Int64(int64(lease.TookOver)))
	}
	l.hold = blame.Hold{Meta: lease.Claim, Token: lease.Token, Here: l, Alone: l.alone, From: now}
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
		//nolint:errcheck,forcetypeassert // nothing else is in it
		p.(*op).link(l.named(), LinkUsedBy)
	}
}

// released takes note of who waited at the store. The link leads to a wait that is kept by tail
// sampling, as this hold is by its waiters.
func (l *lock) released(told backend.Released) {
	l.queue = told.Waiting
	if since := told.Next.Since; !since.IsZero() && time.Since(since) >= nextOver {
		l.link(parseTraceparent(told.Next.Traceparent), LinkNext)
	}
}

func (l *lock) over(_ locker.Hold, err error) {
	now := time.Now()
	if l.hold.Here == nil {
		result := resultOf(err, ResultGranted)
		l.acquired(result, now, err)
		l.span.SetAttributes(AttrResult.String(result))
		if l.refused && !l.waited { // else the wait tells
			l.blockedBy([]blame.Interval{{Who: blame.Hold{Meta: l.holder}}})
		}
		l.end(0, result, err)
		return
	}
	held := now.Sub(l.hold.From)
	l.o.metrics.hold.Record(l.ctx, held.Seconds(), l.class.all)
	waited, joined := l.o.blame.End(&l.hold, now)
	if n := max(waited, joined+l.queue); n > 0 {
		l.span.SetAttributes(AttrWaiters.Int(n))
	}
	cause := causes.of(err)
	if cause != "" { // safeguard: lost-counted
		l.o.metrics.lost.Add(l.ctx, 1, l.class.with(AttrCause.String(cause)))
		l.span.SetAttributes(AttrCause.String(cause))
	}
	l.end(held, cause, err)
}

// beginWait begins the part of a lock in which others are in its way.
func (l *lock) beginWait(ctx context.Context) (context.Context, func(locker.Hold, error)) {
	l.waited = true
	w := &op{o: l.o, lock: l, class: l.class, key: l.key, name: l.class.wait}
	ctx = w.begin(ctx)
	on := l.o.blame.Wait(l.key, l.holder, l, l.attempts == 0) // no bar begins before the span
	return ctx, func(h locker.Hold, err error) {
		if ended := w.ctx.Err(); ended != nil && err != nil { // which is what the store said last
			err = fmt.Errorf("%w: %w", ended, err)
		}
		now := time.Now()
		took, all, result := now.Sub(w.began), l.o.blame.Done(on, now), resultOf(err, ResultGranted)
		l.o.logWait(w, took, result, all)
		if took >= l.o.cfg.BarsOver {
			l.blocked(all)
		}
		if w.span.IsRecording() {
			w.span.SetAttributes(AttrResult.String(result))
			w.blockedBy(all)
			if took >= l.o.cfg.BarsOver {
				unheld, unknown := blame.Gaps(all, on.Since, now, err == nil && l.passed)
				w.span.SetAttributes(AttrHolders.Int(len(all)),
					AttrUnheld.Float64(unheld.Seconds()),
					AttrUnexplained.Float64(unknown.Seconds()))
				if len(all) > maxBars {
					w.others(all[maxBars:]) // safeguard: bars-others
				}
			}
		}
		w.end(took, result, err)
		if took >= l.o.cfg.BarsOver && w.span.SpanContext().IsSampled() {
			w.bars(all[:min(len(all), maxBars)], err != nil, h.Mode)
		}
	}
}

// blocked counts for how long a wait was for whom.
func (l *lock) blocked(all []blame.Interval) {
	for i := range all {
		by := attribute.NewSet(l.class.attrs[0],
			AttrHolderService.String(l.o.holders.Of(all[i].Who.Meta.Service)))
		l.o.metrics.blocked.Add(l.ctx, all[i].For().Seconds(), metric.WithAttributeSet(by))
	}
}

// deadlock tells that a wait is one of those that wait for each other. It may be called while the
// wait goes on.
func (p *op) deadlock(cycle []locker.Waiting) {
	p.o.metrics.deadlocks.Add(p.ctx, 1, p.class.all)
	var services, places, keys []string
	for _, w := range cycle {
		services, places = append(services, w.Who.Service), append(places, w.Where)
		keys = append(keys, w.Holds)
	}
	attrs := []attribute.KeyValue{
		AttrError.String(ResultDeadlock),
		AttrServices.StringSlice(services), AttrPlaces.StringSlice(places),
	}
	if p.o.cfg.ShowKeys {
		attrs = append(attrs, AttrKeys.StringSlice(keys))
	}
	p.span.AddEvent(EventDeadlock, trace.WithAttributes(attrs...))
}

// blockedBy says on the span who was in the way for the longest, so that a search finds it.
func (p *op) blockedBy(all []blame.Interval) {
	if len(all) > 0 {
		p.span.SetAttributes(whom(&all[0].Who, holderSpan(&all[0].Who))...)
	}
	if slices.ContainsFunc(all, func(i blame.Interval) bool { return i.Who.Lapsed }) {
		p.span.SetAttributes(AttrHolderEnd.String(EndExpired))
	}
}

// others says of those that are not drawn how many they are, and for how long they held in sum.
func (p *op) others(all []blame.Interval) {
	var sum time.Duration
	for i := range all {
		sum += all[i].For()
	}
	p.span.SetAttributes(AttrOthers.Int(len(all)), AttrOthersHeld.Float64(sum.Seconds()))
}

// bars draws who was in the way: a finished span below the wait for each hold, with a link to the
// holder's, if that was sampled and is kept.
func (p *op) bars(all []blame.Interval, inVain bool, mode backend.Mode) {
	ctx := trace.ContextWithSpan(p.ctx, p.span)
	for i := range all {
		c := &all[i]
		sc := holderSpan(&c.Who)
		attrs := whom(&c.Who, sc)
		if c.Who.Token != 0 {
			//nolint:gosec // as in token
			attrs = append(attrs, AttrHolderToken.Int64(int64(c.Who.Token)))
		}
		if end := ending(&c.Who, inVain); end != "" {
			attrs = append(attrs, AttrHolderEnd.String(end))
		}
		opts := []trace.SpanStartOption{trace.WithAttributes(attrs...), trace.WithTimestamp(c.From)}
		if sc.IsSampled() && spanKept(&c.Who, inVain, mode) {
			opts = append(opts, trace.WithLinks(trace.Link{
				SpanContext: sc,
				Attributes:  []attribute.KeyValue{AttrLink.String(LinkBlockedBy)},
			}))
		}
		_, s := p.o.tracer.Start(ctx, SpanHeldBy+cmp.Or(c.Who.Meta.Service, "unknown"), opts...)
		s.End(trace.WithTimestamp(c.To))
	}
}

// ending is how a hold ended, as far as is known.
func ending(who *blame.Hold, inVain bool) string {
	switch {
	case inVain && !who.Over():
		return EndHolding
	case who.Lapsed:
		return EndExpired
	case who.Knew: // safeguard: bars-handed
		return EndHanded
	case who.Told, who.Here != nil && who.Over():
		return EndReleased
	}
	return ""
}

// spanKept reports whether the span of a holder is known to have ended, and to say that somebody
// waited, for which tail sampling keeps it (docs/tracing.md). That of one that goes on is not there
// yet, and that of one that died never will be. Of an exclusive lock a hold has ended when the wait
// was granted it; of several permits another may have been given back.
func spanKept(who *blame.Hold, inVain bool, mode backend.Mode) bool {
	switch {
	case who.Lapsed:
		return false
	case who.Here != nil:
		return who.Over() || mode == backend.Exclusive && !inVain
	}
	return who.Knew && mode != backend.Permit // safeguard: link-knew
}

// holderSpan is the span of a hold, as far as is known.
func holderSpan(who *blame.Hold) trace.SpanContext {
	if l, here := who.Here.(*lock); here {
		return l.named()
	}
	return parseTraceparent(who.Meta.Traceparent)
}

// whom is what is known of a holder.
func whom(who *blame.Hold, sc trace.SpanContext) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, 8), holder(who.Meta)...)
	if sc.IsValid() {
		attrs = append(attrs, AttrHolderTrace.String(sc.TraceID().String()))
	}
	return attrs
}

// attempted takes note of an answer of the store to the op's claim.
func (p *op) attempted(h locker.Hold, err error) {
	l := p.lock
	if l != nil {
		l.attempts++
		if err == nil && l.attempts == 1 {
			return // granted at once: the span says it all
		}
	}
	var held *backend.HeldError
	if errors.As(err, &held) {
		if p.holder, p.last = held.Holder, held.Token; l != nil {
			l.refused = true
		}
		p.o.blame.Named(p.key, held.Holder, nil)
	}
	p.tookOver(h.TookOver)
	result := resultOf(err, ResultGranted)
	if result == ResultQuarantined { // safeguard: quarantined-counted
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

// tookOver takes note that the hold of a token ran out, if it is that of whom the last refusal
// named: then nobody was granted the key in between.
func (p *op) tookOver(token uint64) {
	if token != 0 && token == p.last { // safeguard: took-over-named
		p.o.blame.Lapsed(p.key, p.holder)
	}
}

func holder(m backend.Meta) []attribute.KeyValue {
	if m.Service == "" && m.Host == "" && m.PID == 0 {
		return nil
	}
	attrs := []attribute.KeyValue{
		AttrHolderService.String(m.Service),
		AttrHolderHost.String(m.Host), AttrHolderPID.Int(m.PID),
	}
	if m.Note != "" {
		attrs = append(attrs, AttrHolderNote.String(m.Note))
	}
	return attrs
}

// beginLease begins what the process asks for on behalf of its cohort.
func (o *Observer) beginLease(ctx context.Context,
	h locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	p := &op{o: o, class: o.class(h), key: h.Key, name: SpanLease}
	ctx = p.begin(ctx)
	tells := traceparent(p.span.SpanContext())
	if tells != "" { // else it is deferred, and the claim has the caller's
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
func (o *Observer) beginRequest(ctx context.Context,
	what string,
) (context.Context, func(locker.Hold, error)) {
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
		p := &op{
			o: o, ctx: ctx, class: o.class(h), key: h.Key, name: name, began: began,
			span: &deferredSpan{},
		}
		p.span.SetAttributes(AttrResult.String(result))
		p.end(0, result, err)
	}
}

func token(t uint64) attribute.KeyValue {
	//nolint:gosec // tokens are microseconds and counters, far below 2^63
	return AttrToken.Int64(int64(t))
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
	ctx := propagation.TraceContext{}.Extract(context.Background(),
		propagation.MapCarrier{"traceparent": s})
	return trace.SpanContextFromContext(ctx)
}
