package locker

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// The operations an [Observer] is told of.
const (
	OpWait    = "wait"    // one Lock or TryLock, from call to return, however many attempts it takes; if it ends with nil, its OpHold begins next
	OpErrand  = "errand"  // one acquisition for the local line, by its agent: ends with nil when the store has granted
	OpAttempt = "attempt" // one question to the store, inside a wait or an errand; ends with *backend.HeldError if another holds
	OpHold    = "hold"    // from grant to end; ends with nil after Unlock, else with the cause. Begins inside its wait
	OpRenew   = "renew"   // one renewal, inside a hold
	OpRelease = "release" // Unlock's work, or the clean-up after a wait that came to nothing
)

// An Observer is told what happens to locks. Package tracing has one that makes spans and metrics of it. Its methods are
// called on the path of every lock and concurrently: they must be quick and must not block.
type Observer interface {
	// Begin is called when op starts. Everything that belongs to the operation is done under the ctx it returns. The
	// function it returns is called once, when op ends, with the hold (whose token is known only then, for a wait) and the
	// operation's error.
	Begin(ctx context.Context, op string, h Hold) (context.Context, func(Hold, error))
}

// An EventObserver is an [Observer] that is also told what happens inside of operations.
type EventObserver interface {
	Observer

	// Event is called when e happens. ctx is the operation's.
	Event(ctx context.Context, e Event)
}

// The kinds of events.
const (
	EventWake  = "wake"  // a wait or an errand goes on after it slept; Reason says why
	EventGrant = "grant" // a wait has got Lease, and is about to end
	EventPass  = "pass"  // a hold hands Lease on to the next in the local line, and is about to end
	EventDrop  = "drop"  // Lease came too late for everybody, and is given back to the store
	EventClose = "close" // the Client is closed: all that it began has ended
)

// What a wait slept until.
const (
	WakeSignal = "signal" // the store said that the key may be free
	WakeGrant  = "grant"  // the store granted the key together with the wake-up
	WakeClosed = "closed" // the store sends no wake-ups any more
	WakeDue    = "due"    // the blocking lease should have run out, or it was time to ask anyway
	WakeLine   = "line"   // the agent of the local line was granted the key
	WakePass   = "pass"   // a holder in this process handed its lease on
)

// An Event is something that happens inside of an operation.
type Event struct {
	Kind   string
	Reason string // of a wake
	Lease  Lease  // of a grant, a pass and a drop
}

// A Lease is what the store granted, and what holds of one process may use one after the other.
type Lease struct {
	Traceparent string    // the one that its claim took to the store; empty for none
	Until       time.Time // of a grant: the local deadline
	Passes      int       // of a grant: how often the lease was handed on before
}

// A Hold is what is known of one hold of a lock.
type Hold struct {
	Key   string // as the caller gave it, without the namespace
	Mode  backend.Mode
	Token uint64 // rises strictly from holder to holder of Key; 0 if the backend has no fencing
}

type traceparentKey struct{}

// WithTraceparent returns a ctx that carries a W3C traceparent. An Observer returns one from Begin of OpWait and OpErrand, and
// the claim takes it to the store in its metadata, where those who wait for the lock find it. It should name a span of the
// hold to come.
func WithTraceparent(ctx context.Context, text string) context.Context {
	return context.WithValue(ctx, traceparentKey{}, text)
}

// Observers returns one Observer that tells several, and each its own way: the ctx goes through all of them in order, and ends
// are told in reverse. Nil ones are left out.
func Observers(all ...Observer) Observer {
	var many observers
	for _, o := range all {
		if o != nil {
			many = append(many, o)
		}
	}
	return many
}

type observers []Observer

// Begin tells all.
func (many observers) Begin(ctx context.Context, op string, h Hold) (context.Context, func(Hold, error)) {
	ends := make([]func(Hold, error), len(many))
	for i, o := range many {
		ctx, ends[i] = o.Begin(ctx, op, h)
	}
	return ctx, func(h Hold, err error) {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i](h, err)
		}
	}
}

// Event tells those who listen.
func (many observers) Event(ctx context.Context, e Event) {
	for _, o := range many {
		if o, ok := o.(EventObserver); ok {
			o.Event(ctx, e)
		}
	}
}

// observe tells the observer, if there is one, and returns what to call at the end.
func (c *core) observe(ctx context.Context, op string, h Hold) (context.Context, func(Hold, error)) {
	if c.cfg.Observer == nil {
		return ctx, ignore
	}
	return c.cfg.Observer.Begin(ctx, op, h)
}

func ignore(Hold, error) {}

// observeClose tells the observer.
func (c *core) observeClose(ctx context.Context) {
	if c.events != nil {
		c.events.Event(ctx, Event{Kind: EventClose})
	}
}

// observeWake tells the observer that a wait goes on.
func (c *core) observeWake(ctx context.Context, reason string) {
	if c.events != nil {
		c.events.Event(ctx, Event{Kind: EventWake, Reason: reason})
	}
}

// observeTurn tells the observer why a wait in a cohort goes on.
func (c *core) observeTurn(ctx context.Context, l *lease) {
	if c.events == nil {
		return
	}
	if l.passes > 0 {
		c.observeWake(ctx, WakePass)
	} else {
		c.observeWake(ctx, WakeLine)
	}
}

// observeLease tells the observer what becomes of a lease. Once it was passed on, it is another's to look at.
func (c *core) observeLease(ctx context.Context, kind string, l *lease) {
	if c.events == nil {
		return
	}
	told := Lease{Traceparent: l.claim.Meta.Traceparent}
	if kind == EventGrant {
		now := c.now()
		l.mu.Lock()
		told.Until, told.Passes = l.until.local(now), l.passes
		l.mu.Unlock()
	}
	c.events.Event(ctx, Event{Kind: kind, Lease: told})
}

// sign puts into claim the traceparent that the observer gave the operation.
func (c *core) sign(ctx context.Context, claim *backend.Claim) {
	if c.cfg.Observer == nil {
		return // one that ctx has then belongs to another Client's lock
	}
	if text, ok := ctx.Value(traceparentKey{}).(string); ok {
		claim.Meta.Traceparent = text
	}
}
