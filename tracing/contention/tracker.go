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
	// KeyClass returns what kind of lock a key is; the profile has it as the label "class". Default: what stands before the
	// first separator or digit.
	KeyClass func(key string) string
}

// A Tracker is a [locker.EventObserver] and an [http.Handler]. Clients may share one. Its methods may be called concurrently.
type Tracker struct {
	class func(key string) string
	began time.Time

	mu      sync.Mutex // guards what follows, waits and holds included
	waits   map[*wait]struct{}
	holds   map[*hold]struct{}
	named   map[string]holder // per key that somebody waits for: whom the store named last
	profile map[site]spent
	dropped spent // of sites beyond maxSites
}

// New returns a Tracker.
func New(cfg Config) *Tracker {
	if cfg.KeyClass == nil {
		cfg.KeyClass = keyclass.Of
	}
	return &Tracker{
		class: cfg.KeyClass, began: time.Now(), waits: map[*wait]struct{}{}, holds: map[*hold]struct{}{},
		named: map[string]holder{}, profile: map[site]spent{},
	}
}

// depth is how much of a caller's stack is kept.
const depth = 32

// A wait is one Lock or TryLock under way.
type wait struct {
	hold     locker.Hold
	since    time.Time
	stack    [depth]uintptr
	attempts int  // its own
	refused  bool // one of them was
	position int  // in the store's line, by its own last answer
	lease    locker.Lease
}

// A hold is one lock held.
type hold struct {
	locker.Hold
	since   time.Time
	until   time.Time // at the grant
	renewed time.Time // confirmed, for the last time
	stack   [depth]uintptr
}

// A holder is whom the store has named.
type holder struct {
	meta  backend.Meta
	users int // waits for the key
}

type opKey struct{}

func ignore(locker.Hold, error) {}

// Begin implements [locker.Observer].
func (t *Tracker) Begin(ctx context.Context, op string, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	switch op {
	case locker.OpWait:
		w := t.enter(h)
		return context.WithValue(ctx, opKey{}, w), func(_ locker.Hold, err error) { t.leave(w, err) }
	case locker.OpErrand: // its attempts are not those of the wait that sent the agent
		return context.WithValue(ctx, opKey{}, nil), ignore
	case locker.OpAttempt:
		w, _ := ctx.Value(opKey{}).(*wait)
		return ctx, func(h locker.Hold, err error) { t.answered(w, h, err) }
	case locker.OpHold:
		w, _ := ctx.Value(opKey{}).(*wait)
		k := t.hold(w, h)
		return context.WithValue(ctx, opKey{}, k), func(locker.Hold, error) { t.release(k) }
	case locker.OpRenew:
		k, _ := ctx.Value(opKey{}).(*hold)
		return ctx, func(_ locker.Hold, err error) { t.renewed(k, err) }
	}
	return ctx, ignore
}

// Event implements [locker.EventObserver].
func (t *Tracker) Event(ctx context.Context, e locker.Event) {
	if w, ok := ctx.Value(opKey{}).(*wait); ok && e.Kind == locker.EventGrant {
		w.lease = e.Lease // of its own goroutine
	}
}

func (t *Tracker) enter(h locker.Hold) *wait {
	w := &wait{hold: h, since: time.Now()}
	runtime.Callers(4, w.stack[:]) // not Callers, enter, Begin, and what calls it in package locker
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waits[w] = struct{}{}
	n := t.named[h.Key]
	n.users++
	t.named[h.Key] = n
	return w
}

// leave ends a wait. Only one that had to wait is in the profile: who was granted the key at once has waited for the network.
func (t *Tracker) leave(w *wait, err error) {
	spent := time.Since(w.since)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waits, w)
	if n := t.named[w.hold.Key]; n.users > 1 {
		n.users--
		t.named[w.hold.Key] = n
	} else {
		delete(t.named, w.hold.Key)
	}
	if w.refused || w.attempts == 0 && (err == nil || errors.Is(err, backend.ErrHeld)) { // without an own attempt: in the local line
		t.count(w, spent)
	}
}

// answered takes note of whom the store names.
func (t *Tracker) answered(w *wait, h locker.Hold, err error) {
	var held *backend.HeldError
	refused := errors.As(err, &held)
	t.mu.Lock()
	defer t.mu.Unlock()
	if w != nil {
		w.attempts++
		w.refused = w.refused || refused
	}
	if !refused {
		return
	}
	if w != nil {
		w.position = held.Position
	}
	if n, ok := t.named[h.Key]; ok && !here(held.Holder) {
		n.meta = held.Holder
		t.named[h.Key] = n
	}
}

// here reports whether a holder that the store named is this process, which knows better what it holds.
func here(m backend.Meta) bool { return m.PID == os.Getpid() && m.Host == hostname() }

var hostname = sync.OnceValue(func() string {
	name, _ := os.Hostname() // "" is nobody's
	return name
})

func (t *Tracker) hold(w *wait, h locker.Hold) *hold {
	k := &hold{Hold: h, since: time.Now()}
	if w != nil {
		k.stack, k.until = w.stack, w.lease.Until
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds[k] = struct{}{}
	return k
}

func (t *Tracker) release(k *hold) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.holds, k)
}

func (t *Tracker) renewed(k *hold, err error) {
	if k == nil || err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	k.renewed = time.Now()
}
