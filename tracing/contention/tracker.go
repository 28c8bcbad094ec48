package contention

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/blame"
	"github.com/holdfast-go/holdfast/internal/keyclass"
	"github.com/holdfast-go/holdfast/locker"
)

// Config adjusts a [Tracker]. The zero value is ready for use.
type Config struct {
	// KeyClass returns what kind of lock a key is; the profile has it as the label "class".
	// Default: what stands before the first separator or digit.
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
	blame blame.Keys

	mu     sync.Mutex // guards what follows, and what it leads to
	waits  map[*lock]struct{}
	holds  map[*lock]struct{}
	asking map[string]*lock // by key, for those who wait in a cohort
	waited profiled         // by who waited
	held   profiled         // by who held meanwhile
	recent [2][]Past        // the longest waits and holds of the last minute
}

// New returns a Tracker.
func New(cfg Config) *Tracker {
	if cfg.KeyClass == nil {
		cfg.KeyClass = keyclass.Of
	}
	return &Tracker{
		cfg: cfg, began: time.Now(), waits: map[*lock]struct{}{}, holds: map[*lock]struct{}{},
		asking: map[string]*lock{}, waited: profiled{}, held: profiled{},
	}
}

// depth is how much of a caller's stack is kept.
const depth = 32

// A request is what the store was asked for, and what it said last.
type request struct {
	attempts int
	position int // in the store's queue
	named    backend.Meta
}

// A lock is one Lock or TryLock, from the call to the end of the hold; or what a cohort asks for.
type lock struct {
	locker.Hold
	lease bool // the latter
	request
	stack   [depth]uintptr
	trace   string    // its traceparent
	since   time.Time // when it began to wait, and then when it was granted
	until   time.Time // of the lease, at the grant
	renewed time.Time // confirmed, for the last time
	hold    blame.Hold
}

// opKey is where ctx has the *lock that it belongs to.
type opKey struct{}

func lockOf(ctx context.Context) *lock {
	l, _ := ctx.Value(opKey{}).(*lock)
	return l
}

func ignore(locker.Hold, error) {}

// Begin implements [locker.Observer].
func (t *Tracker) Begin(ctx context.Context, op string, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	l := lockOf(ctx)
	switch {
	case op == locker.OpLock:
		l = &lock{Hold: h, trace: locker.Traceparent(ctx)}
		runtime.Callers(3, l.stack[:]) // not Callers, Begin, and what calls it in package locker
		return context.WithValue(ctx, opKey{}, l), func(locker.Hold, error) { t.over(l) }
	case op == locker.OpWait && l != nil:
		on := t.wait(l)
		return ctx, func(locker.Hold, error) { t.done(l, on) }
	case op == locker.OpLease:
		l = &lock{Hold: h, lease: true}
		return context.WithValue(ctx, opKey{}, l), func(locker.Hold, error) { t.answered(l) }
	case op == locker.OpAttempt && l != nil:
		return ctx, func(_ locker.Hold, err error) { t.attempt(l, err) }
	case op == locker.OpRenew && l != nil:
		return ctx, func(_ locker.Hold, err error) { t.renewed(l, err) }
	}
	return ctx, ignore
}

// Event implements [locker.EventObserver].
func (t *Tracker) Event(ctx context.Context, e locker.Event) {
	l := lockOf(ctx)
	switch {
	case l == nil:
	case e.Kind == locker.EventWake:
		t.blame.Told(l.Key, e.Before)
	case e.Kind != locker.EventGrant:
	case l.lease:
		t.answered(l)
	default:
		t.grant(l, e.Lease)
	}
}

func (t *Tracker) wait(l *lock) *blame.Wait {
	on := t.blame.Wait(l.Key, l.named, l)
	t.mu.Lock()
	defer t.mu.Unlock()
	l.since = time.Now()
	t.waits[l] = struct{}{}
	return on
}

// done ends a wait, which is what the profiles are of.
func (t *Tracker) done(l *lock, on *blame.Wait) {
	all := t.blame.Done(on)
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waits, l)
	class := t.cfg.KeyClass(l.Key)
	t.waited.add(l.stack, class, now.Sub(l.since))
	for _, c := range all {
		holder, _ := c.Here.(*lock)
		if holder == nil { // of another process
			holder = &lock{}
		}
		t.held.add(holder.stack, class, c.For)
	}
	t.recent[0] = remember(t.recent[0], l, all)
}

func (t *Tracker) answered(l *lock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking[l.Key] == l {
		delete(t.asking, l.Key)
	}
}

// attempt takes note of whom the store names.
func (t *Tracker) attempt(l *lock, err error) {
	var held *backend.HeldError
	refused := errors.As(err, &held)
	t.mu.Lock()
	defer t.mu.Unlock()
	l.attempts++
	if refused {
		l.position, l.named = held.Position, held.Holder
		t.blame.Named(l.Key, held.Holder)
	}
	if l.lease && err != nil {
		t.asking[l.Key] = l
	}
}

func (t *Tracker) grant(l *lock, got locker.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.Token, l.since, l.until = got.Token, time.Now(), got.Until
	l.hold = blame.Hold{Meta: got.Claim, Token: got.Token, Here: l}
	t.blame.Begin(l.Key, &l.hold)
	t.holds[l] = struct{}{}
}

func (t *Tracker) over(l *lock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, held := t.holds[l]; !held {
		return
	}
	delete(t.holds, l)
	t.blame.End(&l.hold)
	t.recent[1] = remember(t.recent[1], l, nil)
}

func (t *Tracker) renewed(l *lock, err error) {
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l.renewed = time.Now()
}
