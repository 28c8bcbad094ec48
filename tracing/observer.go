package tracing

import (
	"context"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/blame"
	"github.com/holdfast-go/holdfast/locker"
)

// An Observer is a [locker.EventObserver] that makes spans and metrics of what happens to locks. It
// has no goroutine, and nothing to flush or close. One is enough for all clients of a program whose
// keys mean the same; clients with different namespaces and equal keys should have one each, as
// waits are matched with holders by key.
type Observer struct {
	cfg      Config
	tracer   trace.Tracer
	metrics  metrics
	classes  classes
	blame    blame.Keys
	leases   sync.Map // *op of each OpLease that is not over, by traceparent, so that holds can link
	reported reported
}

// NewObserver returns an Observer, for locker.Config.Observer. The error is the meter provider's.
func NewObserver(cfg Config) (*Observer, error) {
	cfg = cfg.withDefaults()
	o := &Observer{cfg: cfg, tracer: tracerOf(cfg.Tracer)}
	o.classes.of = cfg.KeyClass
	var err error
	if o.metrics, err = newMetrics(cfg.Meter, o); err != nil {
		return nil, err
	}
	return o, nil
}

func ignore(locker.Hold, error) {}

// Begin implements [locker.Observer].
func (o *Observer) Begin(ctx context.Context, op string, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	switch op {
	case locker.OpLock:
		return o.beginLock(ctx, h)
	case locker.OpWait:
		return o.beginWait(ctx, h)
	case locker.OpLease:
		return o.beginLease(ctx, h)
	case locker.OpAttempt:
		return ctx, func(h locker.Hold, err error) { o.endAttempt(ctx, h, err) }
	case locker.OpRenew:
		return o.beginRenewal(ctx, h)
	case locker.OpRelease:
		return o.beginRelease(ctx)
	}
	return ctx, ignore
}

// Event implements [locker.EventObserver].
func (o *Observer) Event(ctx context.Context, e locker.Event) {
	p, _ := ctx.Value(opKey{}).(*op)
	switch {
	case p == nil:
	case e.Kind == locker.EventWake:
		o.blame.Told(p.key, e.Before)
		if p.recording() {
			p.event(EventWake, time.Now(), AttrReason.String(e.Reason))
		}
	case e.Kind == locker.EventPass:
		p.class.passes.Add(1)
		p.event(EventPass, time.Now())
	case e.Kind != locker.EventGrant:
	case p.lock != nil:
		p.lock.grant(e.Lease)
	default:
		p.held = true
		p.event(EventGranted, time.Now(), token(e.Lease.Token))
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
	const telling = 4 // bytes; what is shorter also stands in words that have nothing to do with the key
	if len(key) < telling {
		return text
	}
	return strings.ReplaceAll(text, key, "…")
}
