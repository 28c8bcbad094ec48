package locker

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/backend"
)

// A Locker grants guards. It is safe for concurrent use.
type Locker[T any] interface {
	// Lock waits until key is granted or ctx is done. ctx bounds the wait, not the hold, and is the
	// parent of [Guard.Context], so a ctx with a deadline for the wait alone is better given as
	// [WaitLimit]. On failure nothing is held or queued, and the error wraps [ErrNotAcquired]
	// together with ctx.Err and its cause, or the backend's error.
	//
	// Under a guard's own Context the same key fails at once with [ErrWouldDeadlock], unless with
	// [Reentrant].
	Lock(ctx context.Context, key string, opts ...Option) (*Guard[T], error)

	// TryLock makes one attempt and does not wait for a holder: then the error wraps
	// [ErrNotAcquired] and a *backend.HeldError. An attempt that the store did not answer is
	// repeated once.
	//
	// TryLock never overtakes those who wait in the queue: while others keep waiting for the key,
	// it is refused each time, and whoever calls it again and again starves. Lock with a
	// [WaitLimit] is what gets its turn.
	TryLock(ctx context.Context, key string, opts ...Option) (*Guard[T], error)
}

// A Binder makes the value that a Guard protects, once per hold. Put h.Token into it, and the
// resource can refuse stale holders. ctx is done when the hold ends. If binding fails, the lock is
// released and Lock fails with its error, and with why the hold has ended if it has: [ErrLost],
// [ErrMaxHold] or [ErrClosed]. If Close ends the hold during the binding, Lock fails as well.
type Binder[T any] func(ctx context.Context, h Hold) (T, error)

// Bare is the [Binder] for plain critical sections, whose guards protect nothing but their key.
func Bare(context.Context, Hold) (struct{}, error) { return struct{}{}, nil }

// Fixed returns a [Binder] of one value, which the guards of all keys share. Guards of two keys
// have it at once, so it has to be safe for concurrent use, as a pool or a client is. [PerKey]
// gives each key a value of its own.
func Fixed[T any](v T) Binder[T] {
	return func(context.Context, Hold) (T, error) { return v, nil }
}

// A Client is a [Locker] on a backend. Make one per kind of guarded value with [New], keep it, and
// Close it at the end.
type Client[T any] struct {
	core *core
	bind Binder[T]
}

// New returns a Client whose guards protect what bind makes. It asks the store nothing. The backend
// stays the caller's: it may serve several clients, and is to be closed after them. A bad cfg is an
// *[backend.InvalidError]; a backend that lacks what cfg requires is an error that wraps
// [errors.ErrUnsupported].
func New[T any](b backend.Backend, bind Binder[T], cfg Config) (*Client[T], error) {
	if b == nil || bind == nil {
		return nil, fmt.Errorf("holdfast: new locker: %w",
			&backend.InvalidError{Field: "argument", Reason: "backend and binder must not be nil"})
	}
	cfg, err := cfg.withDefaults(b.Capabilities())
	if err != nil {
		return nil, fmt.Errorf("holdfast: new locker: %w", err)
	}
	c := &Client[T]{core: newCore(b, cfg), bind: bind}
	c.core.oneHolder = exclusiveOnly(bind)
	return c, nil
}

// Lock implements [Locker].
func (c *Client[T]) Lock(ctx context.Context, key string, opts ...Option) (*Guard[T], error) {
	return c.acquire(ctx, opLock, key, opts)
}

// TryLock implements [Locker].
func (c *Client[T]) TryLock(ctx context.Context, key string, opts ...Option) (*Guard[T], error) {
	return c.acquire(ctx, opTry, key, opts)
}

// acquire is Lock and TryLock: it ends with a guard, or with nothing held, queued or in flight.
func (c *Client[T]) acquire(ctx context.Context, op, key string, opts []Option) (*Guard[T], error) {
	g := &Guard[T]{}
	o := c.core.defaults
	if len(opts) > 0 {
		o = c.core.options(op, opts)
	}
	if early, ok := o.early.(*Guard[T]); ok {
		g = early
	} else if err := c.core.acquire(ctx, op, key, &o, &g.handle); err != nil {
		return nil, &Error{op, key, err}
	}
	bound := false
	defer func() {
		if !bound { // bind failed, or panicked
			c.core.unlockUnseen(g.h)
		}
	}()
	v, err := c.bind(holdContext{&g.handle}, g.h.info)
	if err != nil || c.core.closing.Err() != nil { // safeguard: bound-late
		if over := g.h.valid(); over != nil { // why bind has failed, or what is no use any more
			why := slices.Concat([]error{ErrNotAcquired, over}, unless(g.Context(), err))
			return nil, &Error{"bind", key, &causes{why}}
		}
	}
	if err != nil {
		return nil, &Error{"bind", key, &causes{[]error{ErrNotAcquired, err}}}
	}
	g.v, bound = v, true
	if o.every > 0 {
		g.h.putMark(o.every)
	}
	return g, nil
}
