package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/holdfast-go/holdfast/backend"
)

// A Guard is a held lock and the value it protects. It is safe for concurrent use. Unlock it.
//
// A guard that is dropped without Unlock is renewed no more, is logged with the place where it was
// locked, and its lease then runs out by itself, since code may still be at work. That is noticed
// by the garbage collector: within two renewals, or a minute if that is longer. A guard is not
// dropped while its Context is in use, or a context derived from it has not been cancelled:
// Config.MaxHold bounds that. A nil or zero Guard behaves like an unlocked one. A Guard must not be
// copied: the copy would not count as in use.
type Guard[T any] struct {
	_ noCopy
	handle
	v T
}

// noCopy lets go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Value returns the protected value while the hold is provably good, else an error that wraps
// [ErrLost], [ErrMaxHold], [ErrClosed] or [ErrUnlocked]. It asks nobody. Call it before each use
// rather than keeping the value.
func (g *Guard[T]) Value() (T, error) {
	var none T
	if g == nil || g.h == nil {
		return none, &Error{"value", "", ErrUnlocked}
	}
	if err := g.h.valid(); err != nil {
		return none, &Error{"value", g.h.info.Key, err}
	}
	return g.v, nil
}

// Context returns a context for the work under the lock. It is done when the hold ends, and its
// Cause then wraps [ErrLost], [ErrMaxHold], [ErrClosed] or [ErrUnlocked]. Derived from the ctx
// given to Lock, it is also done when that one is; the hold then goes on.
//
// After the machine was suspended, it may take up to a third of the TTL to end; Value and Check
// know at once.
func (g *Guard[T]) Context() context.Context {
	if g == nil || g.h == nil {
		return unlocked
	}
	return holdContext{&g.handle}
}

// Lost returns a channel that is closed when the hold is lost. It is not closed by Unlock or by
// Config.MaxHold.
func (g *Guard[T]) Lost() <-chan struct{} {
	if g == nil || g.h == nil {
		return nil
	}
	return g.h.lostChan()
}

// Hold says what is held.
func (g *Guard[T]) Hold() Hold {
	if g == nil || g.h == nil {
		return Hold{}
	}
	return g.h.info
}

// Until returns the local deadline that the hold is provably good for. Renewals move it.
func (g *Guard[T]) Until() time.Time {
	if g == nil || g.h == nil {
		return time.Time{}
	}
	return g.h.goodUntil()
}

// Check asks the store now whether the lock is still held, and renews it if so. It blocks for a
// round trip, until ctx is done, or until the deadline. The error wraps the cause if the hold
// ended; any other means that the store gave no answer and the hold is as good as it was.
func (g *Guard[T]) Check(ctx context.Context) error {
	if g == nil || g.h == nil {
		return &Error{"check", "", ErrUnlocked}
	}
	if err := g.h.lease.check(ctx, g.h); err != nil {
		return &Error{"check", g.h.info.Key, err}
	}
	return nil
}

// Unlock ends the hold and releases the lock, and returns when the store has confirmed it or
// Config.ReleaseTimeout is over: it takes no ctx, because locks leak by passing a dead one. The
// guard is unusable from the moment of the call.
//
// It returns nil if the hold was good until the call. The error wraps [ErrLost] or [ErrMaxHold] if
// the hold ended earlier, which means that work under it may have overlapped with another holder's.
// Any other error means that the store did not confirm: the lease then runs out by itself. Further
// calls return the same.
func (g *Guard[T]) Unlock() error {
	if g == nil || g.h == nil {
		return &Error{"unlock", "", ErrUnlocked}
	}
	if err := g.h.unlock(); err != nil {
		return &Error{"unlock", g.h.info.Key, err}
	}
	return nil
}

// A handle is a part of every guard. Whoever points to it, as a hold's context does, keeps the
// guard from being dropped.
type handle struct{ h *hold }

// A hold is one caller's use of a lease, until it ends.
type hold struct {
	lease  *lease
	info   Hold
	parent context.Context   // Lock's, as the observer has it
	finish func(Hold, error) // ends the operation that the observer saw begin
	site   site
	maxAt  instant // when MaxHold ends it; zero without

	// Guarded by lease.mu.
	cause      error // why it ended; nil while it lasts
	ended      instant
	unlocking  bool          // Unlock was called, or nobody can call it any more
	detached   bool          // by Detach, which unlocks without a release
	outcome    error         // what Unlock returns, when done is closed
	hasOutcome bool          // outcome is there
	done       chan struct{} // made by a second Unlock that waits for the first
	left       bool          // told to the observer, and not counted any more
	lost       chan struct{} // closed on loss; made when asked for
	ctx        context.Context
	cancel     context.CancelCauseFunc // of ctx; both made when somebody looks
	strong     *handle                 // keeps the guard, until the first renewal
	weak       weak.Pointer[handle]    // knows it, from then on

	save     []byte        // what its release saves, for Store
	every    time.Duration // how long after began Once is not to run again; zero: it is not Once's
	began    time.Time
	resource *resource // what the guard protects, if that has an end: see Scoped
	closed   error     // of closing it, by unlock
}

// newHold makes a hold of the lease for g; finish ends its operation for the observer. The caller
// is counted; the count goes on to the hold.
//
// Until the first renewal the hold just keeps the guard, which costs nothing, and most holds are
// over by then. The renewals notice when it is dropped, see leaked.
func (c *core) newHold(ctx context.Context, l *lease, info Hold, finish func(Hold, error), o *call, g *handle) *hold {
	l.mu.Lock()
	h := &l.firstHold
	if h.lease != nil {
		h = &hold{}
	}
	h.lease, h.info, h.parent, h.finish, h.site, h.strong = l, info, ctx, finish, o.site, g
	l.hold = h
	lost := l.lost
	if lost == nil && o.maxHold > 0 {
		now := c.now()
		h.maxAt = now + instant(o.maxHold)
		l.timer.Reset(l.next(now))
	}
	l.mu.Unlock()
	switch { // what happened to the lease on its way to the hold is the hold's to suffer
	case lost != nil:
		h.end(c.now(), lost)
	case c.cut.Err() != nil:
		_ = l.lose(lostBecause(ErrClosed))
	case c.closing.Err() != nil:
		h.end(c.now(), ErrClosed)
	}
	return h
}

// leaked reports whether the guard was dropped without Unlock. Its lease is then renewed no more,
// and not released either: code that copied the value out of the guard may still be at work, and
// the lease gives it until its end. The caller has lease.mu.
func (h *hold) leaked() bool {
	if h.strong != nil {
		h.weak, h.strong = weak.Make(h.strong), nil
		return false
	}
	if h.weak == noHandle {
		return false
	}
	collectGarbage(time.Now())
	return h.weak.Value() == nil
}

var noHandle weak.Pointer[handle]

// collectGarbage runs the garbage collector if it has not run for half a minute: an idle program
// would never notice a guard that was dropped.
func collectGarbage(now time.Time) {
	garbage.mu.Lock()
	defer garbage.mu.Unlock()
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	if n := sample[0].Value.Uint64(); n != garbage.cycles || now.Before(garbage.seen) {
		garbage.cycles, garbage.seen = n, now
	} else if now.Sub(garbage.seen) >= 30*time.Second {
		garbage.seen = now
		go runGC()
	}
}

var runGC = runtime.GC // a variable for tests

var garbage struct {
	mu     sync.Mutex
	cycles uint64
	seen   time.Time // when cycles was seen to change
}

// valid returns nil while the hold is provably good, else why it is not. It looks at the clock
// itself: a timer can be late.
func (h *hold) valid() error {
	l := h.lease
	now := l.core.now()
	l.mu.Lock()
	cause, left := h.cause, time.Duration(l.until-now)
	l.mu.Unlock()
	if cause == nil && left <= 0 {
		_ = l.lose(errExpired)
		return errExpired
	}
	return cause
}

func (h *hold) goodUntil() time.Time {
	l := h.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.cause != nil {
		return l.core.local(min(l.until, h.ended))
	}
	return l.core.local(l.until)
}

// end ends the hold because of cause, and reports whether it did: it may have ended before. It is
// immediate: no I/O, nothing waited for. Except for ErrUnlocked, the lease is still there after
// MaxHold and Close, until Unlock or the deadline, and lost otherwise.
func (h *hold) end(now instant, cause error) bool {
	if h.parent.Err() != nil { // the parent has ended first: the hold's context says so
		h.context()
	}
	l := h.lease
	l.mu.Lock()
	first := h.cause == nil
	if first {
		h.cause, h.ended, h.strong = cause, now, nil
		if errors.Is(cause, ErrMaxHold) {
			l.over = true
			l.timer.Reset(time.Duration(max(l.until-now, 0))) // at the deadline nobody waits for its Unlock any more
		}
	}
	lost := errors.Is(cause, ErrLost)
	if lost && h.lost != nil && h.lost != closedChan && !errors.Is(h.cause, ErrMaxHold) && !errors.Is(h.cause, ErrUnlocked) {
		close(h.lost)
		h.lost = closedChan
	}
	cancel, open, told := h.cancel, h.resource, h.cause
	if h.unlocking {
		open = nil // Unlock closes it
	}
	l.mu.Unlock()
	if first && cancel != nil {
		cancel(cause)
	}
	if first && !errors.Is(cause, ErrUnlocked) {
		l.core.cfg.Logger.Warn("holdfast: hold ended", "key", h.info.Key, "token", h.info.Token, "cause", cause,
			"locked at", &h.site)
	}
	if first && open != nil {
		open.closeBehind()
	}
	if lost {
		if errors.Is(told, ErrUnlocked) { // lost while Unlock closes what it protects
			told = cause
		}
		h.leave(told)
	}
	return first
}

// closedChan stands for a channel that was closed on loss.
var closedChan = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// leave tells the observer of the end, once, and is the end of what Close waits for.
func (h *hold) leave(err error) {
	h.lease.mu.Lock()
	first := !h.left
	h.left = true
	h.lease.mu.Unlock()
	if first {
		h.finish(h.info, err)
		h.lease.core.done()
	}
}

// unlock ends the hold and hands its lease on, or releases it. Its first call decides; later ones
// return the same, after it. (Not a sync.Once: who waits for a mutex stops the clock of a synctest
// bubble.)
func (h *hold) unlock() error {
	l := h.lease
	l.mu.Lock()
	if h.unlocking {
		if h.done == nil {
			h.done = make(chan struct{})
			if h.hasOutcome {
				close(h.done)
			}
		}
		done := h.done
		l.mu.Unlock()
		<-done
		return h.outcome
	}
	h.unlocking = true
	l.mu.Unlock()
	err := h.unlockFirst()
	if h.closed != nil {
		err = errors.Join(err, h.closed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h.outcome, h.hasOutcome = err, true
	if h.done != nil {
		close(h.done)
	}
	return err
}

func (h *hold) unlockFirst() error {
	l, c := h.lease, h.lease.core
	now := c.now()
	if l.expired(now) { // unnoticed: that must not be called an unlock
		h.end(now, errExpired)
	}
	unlocked := h.end(now, ErrUnlocked)
	if h.resource != nil {
		var lasted bool
		now, lasted = h.closeFirst()
		unlocked = unlocked && lasted
	}
	l.mu.Lock()
	cause, under, lost := h.cause, l.renewing, l.lost
	if under != nil {
		l.stop() // no renewal beside a release, or past it; its answer may still say that the lease is lost
	}
	l.mu.Unlock()
	if under != nil {
		<-under
	}
	switch {
	case unlocked, errors.Is(cause, ErrClosed) && !l.expired(now):
		cause = nil
	case !errors.Is(cause, ErrMaxHold): // lost: very likely in the store as well. If not, it is released there
		if errors.Is(cause, ErrClosed) || errors.Is(cause, ErrUnlocked) {
			cause = cmp.Or(lost, errExpired)
		}
		c.drop(h.parent, l)()
		h.leave(cause)
		c.owed.add(h.parent, &l.claim, h.info)
		return cause
	}
	l.mu.Lock()
	l.hold = nil
	l.mu.Unlock()
	if cause == nil && c.pass(l, now, l.good(now)) {
		if c.events != nil {
			c.observeLease(h.parent, EventPass, l)
		}
		h.leave(nil)
		return nil
	}
	if cause == nil && (h.save != nil || h.every > 0) {
		l.leave(h)
	}
	c.holdTimes.add(l.claim.Key, l.passes+1, time.Duration(now-l.granted), time.Now())
	if h.detached && cause == nil && h.closed == nil {
		c.drop(h.parent, l)()
		h.leave(nil)
		return nil
	}
	err := c.giveUp(h.parent, l)
	if errors.Is(err, backend.ErrLost) {
		if l.expired(c.now()) && l.save == nil {
			err = nil // the lease ran out by itself while the release was in flight
		} else {
			err = lostBecause(fmt.Errorf("the store says so: %w", err))
		}
	}
	if cause != nil {
		err = cause
	}
	h.leave(err)
	return err
}

// lostChan returns the channel that is closed on loss.
func (h *hold) lostChan() <-chan struct{} {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.lost == nil {
		h.lost = make(chan struct{})
		if errors.Is(h.cause, ErrLost) || errors.Is(h.cause, ErrClosed) && h.lease.lost != nil {
			h.lost = closedChan
		}
	}
	return h.lost
}

// holdContext is the context of work under a hold: the one given to Lock, ended by the end of the
// hold. It keeps the guard alive, since whoever works under it has not dropped the guard, and it
// leads from an inner Lock call back to the holds that its caller has.
//
// Most holds are over before anybody looks at their context, so what can be done comes into being
// when somebody does.
type holdContext struct{ *handle }

type holdKey struct{}

func (c holdContext) Deadline() (time.Time, bool) { return c.h.parent.Deadline() }

func (c holdContext) Done() <-chan struct{} { return c.h.context().Done() }

func (c holdContext) Err() error { return c.h.inForce().Err() }

// Value finds the hold for holdKey, and else what the parent has. (context.Cause, too, comes here.)
func (c holdContext) Value(key any) any {
	if key == (holdKey{}) {
		return c
	}
	return c.h.inForce().Value(key)
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
	if cause != nil { // the hold ended before the parent, see end
		parent = context.WithoutCancel(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	l.mu.Lock()
	if made := h.ctx; made != nil { // another was quicker
		l.mu.Unlock()
		cancel(nil)
		return made
	}
	h.ctx, h.cancel, cause = ctx, cancel, h.cause
	l.mu.Unlock()
	if cause != nil {
		cancel(cause)
	}
	return ctx
}

// heldBy reports whether ctx belongs to a hold, of any Client, of key in the store that b is a
// client of.
func heldBy(ctx context.Context, b backend.Backend, key string) bool {
	for {
		c, ok := ctx.Value(holdKey{}).(holdContext)
		if !ok {
			return false
		}
		if l := c.h.lease; l.claim.Key == key && l.core.b == b && c.h.valid() == nil {
			return true
		}
		ctx = c.h.parent
	}
}

// unlocked is the Context of a nil Guard.
var unlocked = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrUnlocked)
	return ctx
}()

// A site is where a lock was taken. It is unknown where the lease was handed on within the process,
// which takes no longer than a look at the stack.
type site [3]uintptr // of Do or All, of Lead, and the caller's

// siteSkip is how many frames are between the place where a site is taken, in obtain, and the
// caller of Lock.
const siteSkip = 5

// String names the first caller outside of this package.
func (s *site) String() string {
	if s[0] == 0 {
		return "an unknown place"
	}
	frames := runtime.CallersFrames(s[:])
	for {
		frame, more := frames.Next()
		if !more || !strings.Contains(frame.Function, "/holdfast/locker.") {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
	}
}
