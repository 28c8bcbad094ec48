package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// A Locker grants guards. It is safe for concurrent use.
type Locker[T any] interface {
	// Lock waits until key is granted or ctx is done. ctx bounds the wait, not the hold, and is the parent of
	// [Guard.Context], so a ctx with a deadline for the wait alone is better given as [WaitLimit]. On failure nothing is
	// held or queued, and the error wraps [ErrNotAcquired] together with ctx.Err and its cause, or the backend's error.
	//
	// Under a guard's own Context the same key fails at once with [ErrWouldDeadlock], unless with [Reentrant].
	Lock(ctx context.Context, key string, opts ...Option) (*Guard[T], error)

	// TryLock asks once and does not wait for a holder: then the error wraps [ErrNotAcquired] and a *backend.HeldError. A
	// question that the store did not answer is asked once more. TryLock never overtakes those who wait in line.
	TryLock(ctx context.Context, key string, opts ...Option) (*Guard[T], error)
}

// A Binder makes the value that a Guard protects, once per hold. Put h.Token into it, and the resource can refuse stale
// holders. ctx is done when the hold ends. If it fails, the lock is released and Lock fails with its error.
type Binder[T any] func(ctx context.Context, h Hold) (T, error)

// Bare is the [Binder] for plain critical sections, whose guards protect nothing but their key.
func Bare(context.Context, Hold) (struct{}, error) { return struct{}{}, nil }

// Fixed returns a [Binder] of the same value for every hold: a distributed sync.Mutex around v.
func Fixed[T any](v T) Binder[T] {
	return func(context.Context, Hold) (T, error) { return v, nil }
}

// A Client is a [Locker] on a backend. Make one per kind of guarded value with [New], keep it, and Close it at the end.
type Client[T any] struct {
	core *core
	bind Binder[T]
}

// New returns a Client whose guards protect what bind makes. It asks the store nothing. The backend stays the caller's: it
// may serve several clients, and is to be closed after them. A bad cfg is an *[backend.InvalidError]; a backend that lacks
// what cfg requires is an error that wraps [errors.ErrUnsupported].
func New[T any](b backend.Backend, bind Binder[T], cfg Config) (*Client[T], error) {
	if b == nil || bind == nil {
		return nil, fmt.Errorf("holdfast: new locker: %w",
			&backend.InvalidError{Field: "argument", Reason: "backend and binder must not be nil"})
	}
	cfg, err := cfg.withDefaults(b.Capabilities())
	if err != nil {
		return nil, fmt.Errorf("holdfast: new locker: %w", err)
	}
	return &Client[T]{core: newCore(b, cfg), bind: bind}, nil
}

// Lock implements [Locker].
func (c *Client[T]) Lock(ctx context.Context, key string, opts ...Option) (*Guard[T], error) {
	return c.acquire(ctx, "lock", key, opts)
}

// TryLock implements [Locker].
func (c *Client[T]) TryLock(ctx context.Context, key string, opts ...Option) (*Guard[T], error) {
	return c.acquire(ctx, opTry, key, opts)
}

// Shutdown fails pending and later calls with [ErrClosed], and waits until every guard is unlocked (or lost) and every clean-up
// done. When ctx is done first, the guards that are left end with a cause that wraps [ErrLost] and [ErrClosed]; their leases
// run out by themselves, and Close returns an error that wraps ctx.Err(). No goroutine of the Client is left either way; a
// question that is under way then is waited for, up to the backend's request timeout. Shutdown may be called twice, and
// concurrently.
func (c *Client[T]) Shutdown(ctx context.Context) error { return c.core.close(ctx) }

// Close is [Client.Shutdown] that waits for ten seconds at most.
func (c *Client[T]) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.core.close(ctx)
}

func (c *Client[T]) acquire(ctx context.Context, op, key string, opts []Option) (*Guard[T], error) {
	var caller site
	runtime.Callers(3, caller[:]) // not Callers, not acquire, and not Lock
	k, err := c.core.acquire(ctx, op, key, opts, caller)
	if err != nil {
		return nil, &Error{op, key, err}
	}
	bound := false
	defer func() {
		if !bound { // bind failed, or panicked
			c.core.abandon(k)
		}
	}()
	v, err := c.bind(holdContext{&k.own}, k.hold)
	if err != nil {
		return nil, &Error{"bind", key, &causes{[]error{ErrNotAcquired, err}}}
	}
	bound = true
	return newGuard(k, v), nil
}

// core is a Client without its T.
type core struct {
	b      backend.Backend
	cfg    Config
	events EventObserver // cfg.Observer, if it is one
	caps   backend.Capabilities
	meta   backend.Meta
	life   *lifecycle
	pace   pace
	line   waiting.Line[crewKey, outcome] // of this process
	asleep func(time.Time) time.Duration  // how long the machine had slept by now; a field for tests

	mu      sync.Mutex
	tenures map[*tenure]struct{} // the leases, for Close
	cut     atomic.Bool          // Close ran out of time
}

func newCore(b backend.Backend, cfg Config) *core {
	events, _ := cfg.Observer.(EventObserver)
	c := &core{
		b: b, cfg: cfg, events: events, caps: b.Capabilities(), meta: cfg.meta(), life: newLifecycle(), asleep: asleep,
		tenures: map[*tenure]struct{}{},
	}
	return c
}

// nobody stands for the fresh name that a claim gets when the store is asked; most who wait in the local line never ask.
const nobody = "nobody"

// claim sets claim to the wish that a call makes of the store, validated. See core.ask for who it is.
func (c *core) claim(ctx context.Context, op, key string, o call, claim *backend.Claim) error {
	if err := backend.ValidateKey(key); err != nil { // the key itself first: a namespace must not make "" a key
		return err
	}
	if err := validateTTL(o.ttl, c.caps); err != nil {
		return err
	}
	*claim = backend.Claim{
		Key: backend.Namespaced(c.cfg.Namespace, key), Owner: nobody,
		Mode: o.mode, Limit: o.limit, TTL: o.ttl, Meta: c.meta,
	}
	if err := c.canWait(o.wait); err != nil {
		return err
	}
	if op != opTry && c.queues(o.wait) {
		// Three signs of life within the window, so that one may be lost.
		claim.Queue, claim.WaiterTTL = true, min(3*c.cfg.Wait.Fallback, backend.MaxTTL)
	}
	if o.reentrant {
		claim.Reentrant, claim.Hold, claim.Owner = true, nobody, o.owner
	}
	c.sign(ctx, claim)
	return claim.Validate(c.caps)
}

// queues reports whether Lock stands in the store's line, given the mode that the call asks for, if it does.
func (c *core) queues(asked waiting.Mode) bool {
	mode := cmp.Or(asked, c.cfg.Wait.Mode)
	return c.caps.Queue && c.caps.Fencing && (mode == waiting.Handoff || mode == waiting.Auto)
}

// canWait refuses a mode that there is not, or not on this backend. An empty one is the Client's, which [New] has checked.
func (c *core) canWait(asked waiting.Mode) error {
	switch asked {
	case waiting.Auto, waiting.Poll:
		return nil
	case waiting.Handoff, waiting.Notify:
		return c.caps.Missing(modeNeeds(asked))
	}
	return &backend.InvalidError{Field: "WaitMode", Value: string(asked), Reason: "is none of handoff, notify, poll"}
}

func (c *core) close(ctx context.Context) error {
	idle := c.life.shut()
	defer c.closed(ctx)
	c.line.Close(outcome{})
	defer c.life.endAll(ErrClosed)
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	left := c.heldAtTheCut()
	for _, k := range left {
		if cause := k.finish(lostBecause(ErrClosed)); errors.Is(cause, ErrMaxHold) {
			k.gone(cause)
		}
	}
	c.life.endAll(ErrClosed)
	<-idle // short: nothing that is still counted waits for anything but the store, under a ctx that is now done
	return fmt.Errorf("holdfast: close: cut off, with %d guards not unlocked: %w", len(left), ended(ctx))
}

// heldAtTheCut returns the holds that there are. Each later one looks at cut when it begins.
func (c *core) heldAtTheCut() (left []*keeper) {
	c.cut.Store(true)
	c.mu.Lock()
	tenures := slices.Collect(maps.Keys(c.tenures))
	c.mu.Unlock()
	for _, t := range tenures {
		t.mu.Lock()
		if t.keeper != nil && !t.keeper.left {
			left = append(left, t.keeper)
		}
		t.mu.Unlock()
	}
	return left
}
