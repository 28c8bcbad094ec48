package locker

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// holdContext is the context of work under a hold: the one given to Lock, ended by the end of the hold. It keeps the guard
// alive, since whoever works under it has not dropped the guard, and it leads from an inner Lock call back to the holds that its
// caller has.
//
// Most holds are over before anybody looks at their context, so what can be done comes into being when somebody does.
type holdContext struct{ *anchor }

type holdKey struct{}

func (c holdContext) Deadline() (time.Time, bool) { return c.k.parent.Deadline() }

func (c holdContext) Done() <-chan struct{} { return c.k.context().Done() }

func (c holdContext) Err() error { return c.k.inForce().Err() }

// Value finds the hold for holdKey, and else what the parent has. (context.Cause, too, comes here.)
func (c holdContext) Value(key any) any {
	if key == (holdKey{}) {
		return c
	}
	return c.k.inForce().Value(key)
}

// inForce is the context whose end, cause and values are those of the hold: the parent, as long as that makes no difference.
func (k *keeper) inForce() context.Context {
	k.mu.Lock()
	ctx, over := k.ctx, k.cause != nil
	k.mu.Unlock()
	switch {
	case ctx != nil:
		return ctx
	case over:
		return k.context()
	}
	return k.parent
}

// context is the hold's own context. It is made without mu, as its parent may be under a hold of the same lease.
func (k *keeper) context() context.Context {
	k.mu.Lock()
	ctx, cause := k.ctx, k.cause
	k.mu.Unlock()
	if ctx != nil {
		return ctx
	}
	parent := k.parent
	if cause != nil { // the hold ended before the parent, see finishAt
		parent = context.WithoutCancel(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	k.mu.Lock()
	if made := k.ctx; made != nil { // another was quicker
		k.mu.Unlock()
		cancel(nil)
		return made
	}
	k.ctx, k.cancel, cause = ctx, cancel, k.cause
	k.mu.Unlock()
	if cause != nil {
		cancel(cause)
	}
	return ctx
}

// holds reports whether ctx belongs to a hold, of any Client, of key in the store that b is a client of.
func holds(ctx context.Context, b backend.Backend, key string) bool {
	for {
		c, ok := ctx.Value(holdKey{}).(holdContext)
		if !ok {
			return false
		}
		if c.k.claim.Key == key && c.k.c.b == b && c.k.valid() == nil {
			return true
		}
		ctx = c.k.parent
	}
}

// unlocked is the Context of a nil Guard.
var unlocked = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrUnlocked)
	return ctx
}()
