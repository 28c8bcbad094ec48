package locker

import (
	"context"

	"github.com/holdfast-go/holdfast/backend"
)

// The operations an [Observer] is told of.
const (
	OpWait    = "wait"    // one Lock or TryLock, from call to return, however many attempts it takes
	OpAttempt = "attempt" // one question to the store, inside a wait; ends with *backend.HeldError if another holds
	OpHold    = "hold"    // from grant to end; ends with nil after Unlock, else with the cause
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

// A Hold is what is known of one hold of a lock.
type Hold struct {
	Key   string // as the caller gave it, without the namespace
	Mode  backend.Mode
	Token uint64 // rises strictly from holder to holder of Key; 0 if the backend has no fencing
}

type traceparentKey struct{}

// WithTraceparent returns a ctx that carries a W3C traceparent. An Observer returns one from Begin of OpWait, and the claim
// takes it to the store in its metadata, where those who wait for the lock find it.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, traceparentKey{}, traceparent)
}

// begin tells the observer, if there is one, and returns what to call at the end.
func (c *core) begin(ctx context.Context, op string, h Hold) (context.Context, func(Hold, error)) {
	if c.cfg.Observer == nil {
		return ctx, ignore
	}
	return c.cfg.Observer.Begin(ctx, op, h)
}

func ignore(Hold, error) {}
