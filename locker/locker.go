package locker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
	// repeated once. TryLock never overtakes those who wait in the queue.
	TryLock(ctx context.Context, key string, opts ...Option) (*Guard[T], error)
}

// A Binder makes the value that a Guard protects, once per hold. Put h.Token into it, and the
// resource can refuse stale holders. ctx is done when the hold ends. If it fails, the lock is
// released and Lock fails with its error.
type Binder[T any] func(ctx context.Context, h Hold) (T, error)

// Bare is the [Binder] for plain critical sections, whose guards protect nothing but their key.
func Bare(context.Context, Hold) (struct{}, error) { return struct{}{}, nil }

// Fixed returns a [Binder] of the same value for every hold: a distributed sync.Mutex around v.
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
	return &Client[T]{core: newCore(b, cfg), bind: bind}, nil
}

// Lock implements [Locker].
func (c *Client[T]) Lock(ctx context.Context, key string, opts ...Option) (*Guard[T], error) {
	return c.acquire(ctx, opLock, key, opts)
}

// TryLock implements [Locker].
func (c *Client[T]) TryLock(ctx context.Context, key string, opts ...Option) (*Guard[T], error) {
	return c.acquire(ctx, opTry, key, opts)
}

// closeGrace is how long Close waits for the Unlocks.
const closeGrace = 10 * time.Second

// Close ends the Client. Pending and later calls fail with [ErrClosed]. The contexts of what is
// held end with cause ErrClosed, and Close waits until every guard is unlocked and every clean-up
// is done, for ten seconds at most. Until then the leases are renewed, so that whoever stops and
// unlocks has held the lock to the end.
//
// A guard that is still not unlocked then is lost ([ErrLost] with ErrClosed): its lease is renewed
// no more and runs out by itself, as code may still be at work under it. The error names it, with
// the place where it was locked, and wraps [context.DeadlineExceeded]. An Unlock that comes even
// later still releases the lock in the store.
//
// No goroutine of the Client is left either way; a request that is under way is waited for, up to
// the backend's request timeout. Close may be called twice, and concurrently.
func (c *Client[T]) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	c.core.refuseNew()
	c.core.endHolds(ErrClosed)
	return c.core.drain(ctx)
}

// Shutdown is Close without haste: the contexts of what is held go on, and it waits for the Unlocks
// until ctx is done. Then it is like Close at the end of its time, and the error wraps ctx.Err.
func (c *Client[T]) Shutdown(ctx context.Context) error {
	c.core.refuseNew()
	return c.core.drain(ctx)
}

// core is a Client without its T.
type core struct {
	b         backend.Backend
	cfg       Config
	events    EventObserver // cfg.Observer, if it is one
	caps      backend.Capabilities
	meta      backend.Meta
	holdTimes holdTimes
	suspended func(time.Time) time.Duration // how long the machine had slept by now; a field for tests
	answered  atomic.Int64                  // when the store last answered anybody, in nanoseconds since base
	base      time.Time
	slept     atomic.Int64 // the longest that suspended found, see instant
	owed      owed
	beats     heartbeats
	renewals  renewals

	closing context.Context // done when Close begins: ends waits
	cut     context.Context // done when Close runs out of time: ends clean-ups
	refuse  context.CancelCauseFunc
	cutOff  context.CancelCauseFunc

	mu      sync.Mutex // guards what follows, and the cohorts
	cohorts map[cohortKey]*cohort
	leases  map[*lease]struct{} // those that are renewed or held, for Close
	open    int                 // calls, holds and clean-ups under way
	closed  bool
	idle    chan struct{} // closed when open first falls to 0 after Close began
}

func newCore(b backend.Backend, cfg Config) *core {
	events, _ := cfg.Observer.(EventObserver)
	c := &core{
		b: b, cfg: cfg, events: events, caps: b.Capabilities(), meta: cfg.meta(), suspended: suspended, base: time.Now(),
		cohorts: map[cohortKey]*cohort{}, leases: map[*lease]struct{}{}, idle: make(chan struct{}),
	}
	c.instant(c.base)
	c.owed.core, c.beats.core = c, c
	c.closing, c.refuse = context.WithCancelCause(context.Background())
	c.cut, c.cutOff = context.WithCancelCause(context.Background())
	return c
}

// enter counts a new call, unless Close has begun.
func (c *core) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.open++
	return true
}

// add counts something that belongs to what is counted already.
func (c *core) add() {
	c.mu.Lock()
	c.open++
	c.mu.Unlock()
}

// done ends what enter or add began. Something may yet be added after Close found nothing under
// way: the Unlock of a guard that was lost, which finds cut done.
func (c *core) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open--; c.open == 0 && c.closed {
		c.closeIdle()
	}
}

// closeIdle closes idle once. The caller has mu.
func (c *core) closeIdle() {
	select {
	case <-c.idle:
	default:
		close(c.idle)
	}
}

// refuseNew fails pending and later calls with ErrClosed.
func (c *core) refuseNew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.refuse(ErrClosed) // with mu, so that whoever finds closed set can say that it was Close
	if c.open == 0 {
		c.closeIdle()
	}
	for _, co := range c.cohorts {
		co.failAll(nil)
	}
}

// endHolds ends every hold because of cause. Each later one looks at closing when it begins.
func (c *core) endHolds(cause error) {
	for _, l := range c.allLeases() {
		if h := l.holder(); h != nil {
			h.end(c.now(), cause)
		}
	}
}

// allLeases returns the leases that are held or about to be.
func (c *core) allLeases() []*lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.leases))
}

// drain waits until nothing is under way, or until ctx is done: what is held then is lost, and
// clean-ups end.
func (c *core) drain(ctx context.Context) error {
	defer c.cutOff(ErrClosed)
	select {
	case <-c.idle:
		return nil
	default:
	}
	select {
	case <-c.idle:
		return nil
	case <-ctx.Done():
	}
	c.cutOff(ErrClosed)
	var held []string
	for _, l := range c.allLeases() {
		if h := l.holder(); h != nil {
			held = append(held, fmt.Sprintf("%q, locked at %s", h.info.Key, &h.site))
		}
		_ = l.lose(lostBecause(ErrClosed))
	}
	owed, open := c.owed.drop(), c.stillOpen()
	<-c.idle // soon: what is still under way waits for requests alone, which the backend bounds
	var left []string
	if len(held) > 0 {
		left = append(left, fmt.Sprintf("not unlocked: %s", strings.Join(held, "; ")))
	}
	if len(open) > 0 {
		left = append(left, fmt.Sprintf("what is protected is not closed: %s", strings.Join(open, ", ")))
	}
	if owed > 0 {
		left = append(left, fmt.Sprintf("%d releases not confirmed", owed))
	}
	return fmt.Errorf("holdfast: close: %s: %w", strings.Join(append(left, "out of time"), "; "), ended(ctx))
}
