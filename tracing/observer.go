package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/blame"
	"github.com/holdfast-go/holdfast/locker"
)

// An Observer is a [locker.EventObserver] that makes spans and metrics of what happens to locks. It
// has no goroutine, and nothing to flush or close. One is enough for all clients of a program whose
// keys mean the same; clients with different namespaces and equal keys should have one each, as
// waits are matched with holders by key.
type Observer struct {
	cfg     Config
	tracer  trace.Tracer
	metrics metrics
	classes classes
	holders blame.Names // services that were waited for
	blame   blame.Keys  // has each *lock that waits or holds
	// *op of each OpLease that is not over, by traceparent, so that holds can link
	leases sync.Map
}

// NewObserver returns an Observer, for locker.Config.Observer. The error is the meter provider's.
func NewObserver(cfg Config) (*Observer, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.BarsOver = cmp.Or(cfg.BarsOver, 10*time.Millisecond)
	o := &Observer{cfg: cfg, tracer: tracerOf(cfg.Tracer)}
	o.classes.known = map[kind]*class{}
	if err := o.makeMetrics(cmp.Or(cfg.Meter, otel.GetMeterProvider())); err != nil {
		return nil, fmt.Errorf("holdfast: tracing: instruments: %w", err)
	}
	return o, nil
}

func ignore(locker.Hold, error) {}

// Begin implements [locker.Observer].
func (o *Observer) Begin(ctx context.Context, op string,
	h locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	switch op {
	case locker.OpLock:
		return o.beginLock(ctx, h)
	case locker.OpLease:
		return o.beginLease(ctx, h)
	case locker.OpWait:
		if p := opOf(ctx); p != nil && p.lock != nil {
			return p.lock.beginWait(ctx)
		}
	case locker.OpAttempt:
		if p := opOf(ctx); p != nil {
			return ctx, p.attempted
		}
	case locker.OpRenew, locker.OpRelease:
		return o.beginRequest(ctx, op)
	}
	return ctx, ignore
}

// Event implements [locker.EventObserver].
func (o *Observer) Event(ctx context.Context, e locker.Event) {
	p := opOf(ctx)
	switch {
	case p == nil:
	case e.Kind == locker.EventWake:
		if p.lock != nil {
			p.lock.passed = e.Reason == locker.WakePass
		}
		o.blame.Told(p.key, e.Before, e.Reason == locker.WakeGrant)
		p.span.AddEvent(EventWake, trace.WithAttributes(AttrReason.String(e.Reason)))
	case e.Kind == locker.EventPass:
		o.metrics.passes.Add(ctx, 1, p.class.all)
		p.span.AddEvent(EventPass)
	case e.Kind == locker.EventDeadlock:
		p.deadlock(e.Cycle)
	case e.Kind == locker.EventRelease:
		if p.lock != nil {
			p.lock.released(e.Released)
		}
	case e.Kind != locker.EventGrant:
	case p.lock != nil:
		p.lock.grant(e.Lease)
	default:
		p.held = true
		p.tookOver(e.Lease.TookOver)
		p.span.AddEvent(EventGranted, trace.WithAttributes(token(e.Lease.Token)))
	}
}

// text is what err says, without the key unless keys are shown.
func (o *Observer) text(key string, err error) string {
	if o.cfg.ShowKeys {
		return err.Error()
	}
	return withoutKey(err.Error(), key)
}

func withoutKey(text, key string) string {
	// Bytes. What is shorter also stands in words that have nothing to do with the key.
	const telling = 4
	if len(key) < telling { // safeguard: key-in-errors
		return text
	}
	quoted := strconv.Quote(key) // as by %q
	quoted = quoted[1 : len(quoted)-1]
	return strings.NewReplacer(key, "…", quoted, "…").Replace(text) // safeguard: quoted-key
}

// logWait logs a wait that took long, and because of whom. Times are numbers of seconds, as
// everywhere in spans and metrics, so that lines can be compared and added up.
func (o *Observer) logWait(w *op, took time.Duration, result string, all []blame.Interval) {
	if o.cfg.LogOver <= 0 || took < o.cfg.LogOver { // safeguard: log-over
		return
	}
	args := []any{
		"class", w.class.name, "waited_seconds", took.Seconds(), "result", result,
		"blockers", len(all),
	}
	if o.cfg.ShowKeys { // safeguard: log-key
		args = append(args, "key", w.key)
	}
	if len(all) > 0 {
		for _, a := range whom(&all[0].Who, holderSpan(&all[0].Who)) {
			args = append(args, string(a.Key), a.Value.AsInterface())
		}
		args = append(args, "held_seconds", all[0].For().Seconds())
	}
	o.cfg.Logger.WarnContext(w.ctx, "holdfast: waited for a lock", args...)
}
