package contention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/blame"
	"github.com/holdfast-go/holdfast/locker"
)

// Config adjusts a [Tracker]. The zero value is ready for use.
type Config struct {
	// KeyClass returns what kind of lock a key is; the profile has it as the label "class".
	// Default: what locker.Config.Classes says.
	KeyClass func(key string) string

	// TraceURL is where a trace is shown, with {trace} for its id: the page links to it. For
	// Jaeger "http://localhost:16686/trace/{trace}". Default: no links. List the Tracker behind
	// the observer that traces, see locker.Observers.
	TraceURL string
}

// A Tracker is a [locker.EventObserver] and an [http.Handler]. Clients may share one. Its methods
// may be called concurrently.
type Tracker struct {
	cfg   Config
	began time.Time
	blame blame.Keys // has each *lock that waits or holds

	holders blame.Names // other processes that the profile has as such

	mu    sync.Mutex // guards what follows, and what may change of a lock
	spent spending

	longestWaits, longestHolds []Lock // of those that ended in the last minute

	deadlocks []Deadlock // the last ones, the latest first
}

// New returns a Tracker.
func New(cfg Config) *Tracker {
	return &Tracker{
		cfg: cfg, began: time.Now(), spent: spending{},
		// never null in JSON
		longestWaits: []Lock{}, longestHolds: []Lock{}, deadlocks: []Deadlock{},
	}
}

// depth is how much of a caller's stack is kept.
const depth = 32

// A lock is one Lock or TryLock, from the call to the end of the hold; or what a cohort asks for.
type lock struct {
	locker.Hold
	lease bool // the latter
	stack [depth]uintptr
	trace string     // its traceparent
	hold  blame.Hold // once it is granted

	attempts int
	position int          // in the store's queue, by the last answer
	named    backend.Meta // who held, by the same
}

// opKey is where ctx has the *lock that it belongs to.
type opKey struct{}

func ignore(locker.Hold, error) {}

// Begin implements [locker.Observer].
func (t *Tracker) Begin(ctx context.Context, op string,
	h locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	l, known := ctx.Value(opKey{}).(*lock)
	switch {
	case op == locker.OpLock:
		l = &lock{Hold: h, trace: locker.Traceparent(ctx)}
		runtime.Callers(3, l.stack[:]) // not Callers, Begin, and what calls it in package locker
		return context.WithValue(ctx, opKey{}, l), func(locker.Hold, error) { t.over(l) }
	case op == locker.OpLease:
		return context.WithValue(ctx, opKey{}, &lock{Hold: h, lease: true}), ignore
	case !known:
	case op == locker.OpWait:
		on := t.blame.Wait(l.Key, l.named, l, false)
		return ctx, func(locker.Hold, error) { t.done(l, on) }
	case op == locker.OpAttempt:
		return ctx, func(_ locker.Hold, err error) { t.attempt(l, err) }
	}
	return ctx, ignore
}

// Event implements [locker.EventObserver].
func (t *Tracker) Event(ctx context.Context, e locker.Event) {
	l, known := ctx.Value(opKey{}).(*lock)
	switch {
	case !known:
	case e.Kind == locker.EventDeadlock:
		t.deadlock(e.Cycle)
	case e.Kind == locker.EventWake:
		t.blame.Told(l.Key, e.Before, false)
	case e.Kind == locker.EventGrant && !l.lease:
		l.hold = blame.Hold{
			Meta: e.Lease.Claim, Token: e.Lease.Token, Here: l,
			Alone: l.Mode == backend.Exclusive, From: time.Now(),
		}
		t.blame.Begin(l.Key, &l.hold)
	}
}

// deadlock keeps a cycle, which each of its waits may tell, beginning with itself.
func (t *Tracker) deadlock(cycle []locker.Waiting) {
	first := slices.Index(cycle, slices.MinFunc(cycle, func(a, b locker.Waiting) int {
		return cmp.Compare(a.Holds, b.Holds)
	}))
	d := Deadlock{time.Now(), slices.Concat(cycle[first:], cycle[:first])}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deadlocks = slices.DeleteFunc(t.deadlocks, func(o Deadlock) bool {
		return slices.Equal(o.Waits, d.Waits)
	})
	t.deadlocks = slices.Insert(t.deadlocks, 0, d)[:min(len(t.deadlocks)+1, longest)]
}

// done ends a wait, which is what the profiles are of.
func (t *Tracker) done(l *lock, on *blame.Wait) {
	now := time.Now()
	all, class := t.blame.Done(on, now), l.Class
	if t.cfg.KeyClass != nil {
		class = t.cfg.KeyClass(l.Key)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spent.add(site{l.stack, class, ""}, now.Sub(on.Since))
	for _, c := range all {
		if c.For() == 0 {
			continue // it was named, and no more
		}
		if holder, ours := c.Who.Here.(*lock); ours {
			t.spent.add(site{holder.stack, class, here}, c.For())
		} else {
			process := fmt.Sprintf("%s/%d", c.Who.Meta.Service, c.Who.Meta.PID)
			t.spent.add(site{class: class, holder: t.holders.Of(process)}, c.For())
		}
	}
	t.longestWaits = remember(t.longestWaits, l, on.Since, now, all[:min(len(all), 16)])
}

// attempt takes note of whom the store names.
func (t *Tracker) attempt(l *lock, err error) {
	var held *backend.HeldError
	t.mu.Lock()
	defer t.mu.Unlock()
	l.attempts++
	if err == nil {
		return
	}
	var named backend.Meta // nobody, if the store did not answer
	if errors.As(err, &held) {
		named = held.Holder
		l.position, l.named = held.Position, named
	}
	var cohort any
	if l.lease {
		cohort = l
	}
	t.blame.Named(l.Key, named, cohort)
}

func (t *Tracker) over(l *lock) {
	if l.hold.Here == nil { // never granted
		return
	}
	now := time.Now()
	t.blame.End(&l.hold, now)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.longestHolds = remember(t.longestHolds, l, l.hold.From, now, nil)
}
