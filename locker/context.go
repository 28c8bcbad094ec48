package locker

import (
	"context"
	"errors"
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

// Value finds the hold for holdKey, and else what the parent has. context.Cause, too, comes here:
// of a hold that goes on when its caller's time is over it says so, as that time was often meant
// for the wait alone.
func (c holdContext) Value(key any) any {
	if key == (holdKey{}) {
		return c
	}
	// safeguard: caller-late
	if h := c.h; errors.Is(h.parent.Err(), context.DeadlineExceeded) && !h.over() {
		cause := context.Cause(h.parent)
		//nolint:errorlint // the hold around it may say so already
		if _, known := cause.(*callerLate); !known {
			cause = &callerLate{cause}
		}
		told, cancel := context.WithCancelCause(context.WithoutCancel(h.parent))
		cancel(cause)
		return told.Value(key)
	}
	return c.h.inForce().Value(key)
}

// callerLate is why the context of a hold has ended that goes on.
type callerLate struct{ cause error }

func (e *callerLate) Error() string {
	return "the time of the context given to Lock is over, and the lock is still held; a limit " +
		"for the wait alone is WaitLimit: " + e.cause.Error()
}

func (e *callerLate) Unwrap() error { return e.cause }

// over reports whether the hold has ended as far as is known.
func (h *hold) over() bool {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	return h.cause != nil
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
	// The hold ended before the parent, see end: what ends the parent later is not its cause.
	if cause != nil {
		parent = context.WithoutCancel(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	l.mu.Lock()
	if made := h.ctx; made != nil { // another was quicker, and its context may be in use
		l.mu.Unlock()
		cancel(nil)
		return made
	}
	h.ctx, h.cancel, cause = ctx, cancel, h.cause // safeguard: context-looks-again
	l.mu.Unlock()
	if cause != nil { // it ended since we looked, and end found no context to cancel
		cancel(cause)
	}
	return ctx
}
