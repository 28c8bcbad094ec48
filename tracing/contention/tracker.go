package contention

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/keyclass"
	"github.com/holdfast-go/holdfast/locker"
)

// Config adjusts a [Tracker]. The zero value is ready for use.
type Config struct {
	// KeyClass returns what kind of lock a key is; the profile has it as the label "class".
	// Default: what stands before the first separator or digit.
	KeyClass func(key string) string
}

// A Tracker is a [locker.EventObserver] and an [http.Handler]. Clients may share one. Its methods
// may be called concurrently.
type Tracker struct {
	class func(key string) string
	began time.Time

	mu      sync.Mutex // guards what follows, and what it leads to
	waits   map[*lock]struct{}
	holds   map[*lock]struct{}
	asking  map[*lease]struct{} // for those who wait in a cohort
	named   map[string]holder   // per key that somebody waits for: whom the store named last
	profile map[site]spent
	dropped spent // of sites beyond maxSites
}

// New returns a Tracker.
func New(cfg Config) *Tracker {
	if cfg.KeyClass == nil {
		cfg.KeyClass = keyclass.Of
	}
	return &Tracker{
		class: cfg.KeyClass, began: time.Now(), waits: map[*lock]struct{}{}, holds: map[*lock]struct{}{},
		asking: map[*lease]struct{}{}, named: map[string]holder{}, profile: map[site]spent{},
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

// A lock is one Lock or TryLock, from the call to the end of the hold.
type lock struct {
	locker.Hold
	request
	stack   [depth]uintptr
	since   time.Time // when it began to wait, and then when it was granted
	until   time.Time // of the lease, at the grant
	renewed time.Time // confirmed, for the last time
}

// A lease is what the process asks the store for on behalf of a cohort.
type lease struct {
	key string
	request
}

// A holder is whom the store has named.
type holder struct {
	meta    backend.Meta
	waiters int // for the key
}

type opKey struct{}

func ignore(locker.Hold, error) {}

// Begin implements [locker.Observer].
func (t *Tracker) Begin(ctx context.Context, op string, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	switch op {
	case locker.OpLock:
		l := &lock{Hold: h}
		runtime.Callers(3, l.stack[:]) // not Callers, Begin, and what calls it in package locker
		return context.WithValue(ctx, opKey{}, l), func(locker.Hold, error) { t.release(l) }
	case locker.OpWait:
		if l, ok := ctx.Value(opKey{}).(*lock); ok {
			t.wait(l)
			return ctx, func(locker.Hold, error) { t.waited(l) }
		}
	case locker.OpLease:
		l := &lease{key: h.Key}
		t.ask(l)
		return context.WithValue(ctx, opKey{}, l), func(locker.Hold, error) { t.answered(l) }
	case locker.OpAttempt:
		return ctx, func(h locker.Hold, err error) { t.attempt(ctx, h.Key, err) }
	case locker.OpRenew:
		if l, ok := ctx.Value(opKey{}).(*lock); ok {
			return ctx, func(_ locker.Hold, err error) { t.renewed(l, err) }
		}
	}
	return ctx, ignore
}

// Event implements [locker.EventObserver].
func (t *Tracker) Event(ctx context.Context, e locker.Event) {
	if e.Kind != locker.EventGrant {
		return
	}
	switch l := ctx.Value(opKey{}).(type) {
	case *lock:
		t.grant(l, e.Lease)
	case *lease:
		t.answered(l)
	}
}

func (t *Tracker) wait(l *lock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.since = time.Now()
	t.waits[l] = struct{}{}
	n := t.named[l.Key]
	n.waiters++
	n.name(l.named)
	t.named[l.Key] = n
}

// waited ends a wait, which is what the profile is of.
func (t *Tracker) waited(l *lock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waits, l)
	if n := t.named[l.Key]; n.waiters > 1 {
		n.waiters--
		t.named[l.Key] = n
	} else {
		delete(t.named, l.Key)
	}
	t.count(l, time.Since(l.since))
}

func (t *Tracker) ask(l *lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking[l] = struct{}{}
}

func (t *Tracker) answered(l *lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.asking, l)
}

// attempt takes note of whom the store names.
func (t *Tracker) attempt(ctx context.Context, key string, err error) {
	var held *backend.HeldError
	refused := errors.As(err, &held)
	t.mu.Lock()
	defer t.mu.Unlock()
	var r *request
	switch l := ctx.Value(opKey{}).(type) {
	case *lock:
		r = &l.request
	case *lease:
		r = &l.request
	default:
		return
	}
	r.attempts++
	if !refused {
		return
	}
	r.position, r.named = held.Position, held.Holder
	if n, ok := t.named[key]; ok {
		n.name(held.Holder)
		t.named[key] = n
	}
}

// name takes note of a holder, unless it is this process, which knows better what it holds.
func (h *holder) name(m backend.Meta) {
	if m != (backend.Meta{}) && (m.PID != os.Getpid() || m.Host != hostname()) {
		h.meta = m
	}
}

var hostname = sync.OnceValue(func() string {
	name, _ := os.Hostname() // "" is nobody's
	return name
})

func (t *Tracker) grant(l *lock, got locker.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.Token, l.since, l.until = got.Token, time.Now(), got.Until
	t.holds[l] = struct{}{}
}

func (t *Tracker) release(l *lock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.holds, l)
}

func (t *Tracker) renewed(l *lock, err error) {
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l.renewed = time.Now()
}
