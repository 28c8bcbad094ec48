package locker

import (
	"context"
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/suspend"
)

// core is a Client without its T: what all its locks have in common, and no more. Its functions are
// in the files that they belong to; this one has the count of what is under way.
type core struct {
	b         backend.Backend
	cfg       Config
	defaults  call          // what a call without options asks for
	events    EventObserver // cfg.Observer, if it is one
	caps      backend.Capabilities
	meta      backend.Meta
	holdTimes holdTimes
	// how long the machine had slept by now; a field for tests
	suspended func(time.Time) time.Duration
	lastReply atomic.Int64 // when the store last answered anybody, in nanoseconds since base
	base      time.Time
	slept     atomic.Int64 // the longest that suspended found, see instant
	pending   pending
	beats     heartbeats
	renewals  renewals
	watched   atomic.Int64 // leases that are watched for their loss

	oneHolder bool // what guards protect is PerKey's

	closing context.Context // done when Close begins: ends waits
	cut     context.Context // done when Close runs out of time: ends clean-ups
	refuse  context.CancelCauseFunc
	cutOff  context.CancelCauseFunc

	mu      sync.Mutex // guards what follows
	cohorts map[cohortKey]*cohort
	alone   map[*lease]struct{} // leases without a cohort that are renewed or held, for Close
	free    map[keptKey]*kept   // values of PerKey that no hold has; nil before the first

	// calls, holds and clean-ups under way, and closedOpen from when Close began
	open      atomic.Int64
	idle      chan struct{} // closed when open first falls to closedOpen
	closeIdle func()
}

// closedOpen is far below the count of what may be under way.
const closedOpen = math.MinInt64 / 2

func newCore(b backend.Backend, cfg Config) *core {
	events, _ := cfg.Observer.(EventObserver)
	// A struct with a function, say: heldBy and excludedBy compare it.
	if !reflect.ValueOf(b).Comparable() {
		b = &struct{ backend.Backend }{b}
	}
	c := &core{
		b: b, cfg: cfg, events: events, caps: b.Capabilities(), meta: cfg.meta(),
		suspended: suspend.Slept, base: time.Now(),
		cohorts: map[cohortKey]*cohort{}, alone: map[*lease]struct{}{}, idle: make(chan struct{}),
		defaults: call{
			ttl: cfg.TTL, maxHold: cfg.MaxHold, failFast: cfg.Wait.FailFast,
			wait: cfg.Wait.Mode,
		},
	}
	c.instant(c.base)
	c.closeIdle = sync.OnceFunc(func() { close(c.idle) })
	c.pending.core, c.beats.core = c, c
	c.closing, c.refuse = context.WithCancelCause(context.Background())
	c.cut, c.cutOff = context.WithCancelCause(context.Background())
	return c
}

// enter counts a new call, unless Close has begun: then the count is far below zero. So one atomic
// step both counts and looks, and no call slips in between Close's look and its own.
func (c *core) enter() bool {
	if c.open.Add(1) > 0 {
		return true
	}
	c.done()
	return false
}

// add counts something that belongs to what is counted already, so that the count cannot fall to
// nothing before it.
func (c *core) add() { c.open.Add(1) }

// done ends what enter or add began. Something may yet be added after Close found nothing under
// way: the Unlock of a guard that was lost, which finds cut done.
func (c *core) done() {
	if c.open.Add(-1) == closedOpen {
		c.closeIdle()
	}
}

// noteReply notes that the store answers. It is one atomic store, as each answer passes here.
func (c *core) noteReply() { c.lastReply.Store(int64(time.Since(c.base))) }

// silence is how long ago the store last answered.
func (c *core) silence() time.Duration {
	return time.Since(c.base.Add(time.Duration(c.lastReply.Load())))
}

// timedOut reports whether the store has given a claim no definite answer since then for longer
// than the timeout. While others of this client are answered, the store is busy rather than away,
// and a claim is given four times as long.
func (c *core) timedOut(since time.Time, timeout time.Duration) bool {
	alone, all := time.Since(since), c.silence()
	return alone >= timeout && (all >= timeout || alone >= 4*timeout) // safeguard: busy-is-bounded
}
