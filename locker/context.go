package locker

import (
	"context"
	"time"
)

// A handle is a part of every guard. Whoever points to it, as a hold's context does, keeps the
// guard from being dropped.
type handle struct{ h *hold }

// holdContext is the context of work under a hold: the one given to Lock, ended by the end of the
// hold. It keeps the guard alive, since whoever works under it has not dropped the guard, and it
// leads from an inner Lock call back to the holds that its caller has.
//
// Most holds are over before anybody looks at their context, so what can be done comes into being
// when somebody does.
type holdContext struct{ *handle }

type holdKey struct{}

// HoldFrom returns the hold that ctx belongs to, as Do, All, Lead and Once give one to their
// functions and [Guard.Context] and a Binder have it; of several, the innermost. So its token is
// there under a Client of whatever type. It is returned also when it is over: ctx.Err, with its
// cause, and [Guard.Check] tell. ok is false if ctx belongs to none.
func HoldFrom(ctx context.Context) (h Hold, ok bool) {
	of, ok := ctx.Value(holdKey{}).(holdContext)
	if !ok {
		return Hold{}, false
	}
	return of.h.info, true
}

func (c holdContext) Deadline() (time.Time, bool) { return c.h.parent.Deadline() }

func (c holdContext) Done() <-chan struct{} { return c.h.context().Done() }

func (c holdContext) Err() error { return c.h.inForce().Err() }

// Value finds the hold for holdKey, and else what the parent has. (context.Cause, too, comes here.)
func (c holdContext) Value(key any) any {
	if key == (holdKey{}) {
		return c
	}
	return c.h.inForce().Value(key)
}

// inForce is the context whose end, cause and values are those of the hold: the parent, as long as
// that makes no difference.
func (h *hold) inForce() context.Context {
	h.lease.mu.Lock()
	ctx, over := h.ctx, h.cause != nil
	h.lease.mu.Unlock()
	switch {
	case ctx != nil:
		return ctx
	case over:
		return h.context()
	}
	return h.parent
}

// context is the hold's own context. It is made without the mutex, as its parent may be under a
// hold of the same lease.
func (h *hold) context() context.Context {
	l := h.lease
	l.mu.Lock()
	ctx, cause := h.ctx, h.cause
	l.mu.Unlock()
	if ctx != nil {
		return ctx
	}
	parent := h.parent
	if cause != nil { // the hold ended before the parent, see end: what ends the parent later is not its cause
		parent = context.WithoutCancel(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	l.mu.Lock()
	if made := h.ctx; made != nil { // another was quicker, and its context may be in use
		l.mu.Unlock()
		cancel(nil)
		return made
	}
	h.ctx, h.cancel, cause = ctx, cancel, h.cause
	l.mu.Unlock()
	if cause != nil { // it ended since we looked, and end found no context to cancel
		cancel(cause)
	}
	return ctx
}
