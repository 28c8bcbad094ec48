package locker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
	"weak"

	"github.com/holdfast-go/holdfast/backend"
)

// A keeper is one hold, from its grant or from the one before it in the local line, until it ends. What it shares with the
// holds before and after it, the lease, is the tenure's.
type keeper struct {
	*tenure
	hold   Hold
	parent context.Context   // Lock's, as the observer has it
	end    func(Hold, error) // tells the observer
	caller site              // who called Lock, for the log
	own    anchor            // for the Binder's context, whose guard is yet to come
	limit  *time.Timer       // at MaxHold; nil without

	// Guarded by tenure.mu.
	ended    time.Time     // when
	cause    error         // why the hold ended; nil while it lasts
	over     chan struct{} // closed when the hold ends; made by a renewal that waits for its turn
	unlocked bool          // Unlock was called
	settled  bool          // and outcome is there
	outcome  error         // what Unlock returns
	done     chan struct{} // closed when outcome is there; made by a second Unlock that waits for the first
	left     bool          // out of the books
	lost     chan struct{} // closed on loss; made when asked for
	ctx      context.Context
	cancel   context.CancelCauseFunc // of ctx; both made when somebody looks
	anchor   *anchor                 // keeps the guard, until the first renewal
	weakly   weak.Pointer[anchor]    // knows it, from then on
}

// An anchor is a part of every guard. Whoever points to it keeps the guard from being dropped.
type anchor struct{ k *keeper }

// keep makes a hold of the lease. The caller is counted in c.life; the count goes on to the keeper.
func (c *core) keep(ctx context.Context, t *tenure, hold Hold, caller site) *keeper {
	k := &keeper{tenure: t, hold: hold, caller: caller}
	k.own.k = k
	k.parent, k.end = c.begin(ctx, OpHold, hold)
	if d := c.cfg.MaxHold; d > 0 {
		k.mu.Lock() // before the timer can look
		k.limit = time.AfterFunc(d, func() { _ = k.finish(ErrMaxHold) })
		k.mu.Unlock()
	}
	t.attach(k)
	return k
}

// watchOver has the renewals notice when the guard of a is dropped. Most holds are over before the first renewal, and for
// those this costs nothing: until then the keeper just keeps the guard.
func (k *keeper) watchOver(a *anchor) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cause == nil {
		k.anchor = a
	}
}

// leaked reports whether the guard was dropped without Unlock. The hold is then renewed no more, and not released either: code
// that copied the value out of the guard may still be at work, and the lease gives it until its end. The caller has mu.
func (k *keeper) leaked() bool {
	if k.anchor != nil {
		k.weakly, k.anchor = weak.Make(k.anchor), nil
		return false
	}
	return k.weakly != weak.Pointer[anchor]{} && k.weakly.Value() == nil
}

var errLeaked = lostBecause(ErrLeaked)

// valid returns nil while the hold is provably good, else why it is not. It looks at the clock itself: a timer can be late.
func (k *keeper) valid() error {
	k.mu.Lock()
	cause, rest := k.cause, k.c.remaining(k.until)
	k.mu.Unlock()
	if cause == nil && rest <= 0 {
		return k.finish(errExpired)
	}
	return cause
}

// finish ends the hold because of cause, unless it has ended before, and returns the cause that stands. It is immediate: no
// I/O, nothing waited for.
func (k *keeper) finish(cause error) error { return k.finishAt(time.Now(), cause) }

func (k *keeper) finishAt(now time.Time, cause error) error {
	k.heedParent()
	k.mu.Lock()
	ended := k.conclude(now, cause)
	cause, cancel := k.cause, k.cancel
	k.mu.Unlock()
	if ended {
		k.announce(cause, cancel)
	}
	return cause
}

// heedParent has the hold's context end because of its parent, if that has come first. It is called without mu.
func (k *keeper) heedParent() {
	if k.parent.Err() != nil {
		k.context()
	}
}

// conclude ends the hold and reports whether it did: it may have ended before. The caller has mu, and calls announce
// without it.
func (k *keeper) conclude(now time.Time, cause error) bool {
	if k.cause != nil {
		return false
	}
	k.cause, k.ended, k.anchor = cause, now, nil
	if k.over != nil {
		close(k.over)
	}
	if k.limit != nil {
		k.limit.Stop()
	}
	switch {
	case errors.Is(cause, ErrUnlocked): // the lease may be handed on
	case errors.Is(cause, ErrMaxHold): // stays in the books for as long as its lease
		k.tenure.over = true
		k.renewal.Stop()
	default:
		k.halt()
	}
	if k.stop != nil {
		k.stop()
	}
	if k.lost != nil && errors.Is(cause, ErrLost) {
		close(k.lost)
	}
	return true
}

// announce tells of the end. After ErrUnlocked, unlock goes on, and calls gone when the store knows.
func (k *keeper) announce(cause error, cancel context.CancelCauseFunc) {
	if cancel != nil {
		cancel(cause)
	}
	if errors.Is(cause, ErrUnlocked) {
		return
	}
	k.c.cfg.Logger.Warn("holdfast: hold ended", "key", k.hold.Key, "token", k.hold.Token, "cause", cause, "locked at", &k.caller)
	if !errors.Is(cause, ErrMaxHold) {
		k.gone(cause)
	}
}

// gone takes the keeper and its lease out of the books, once.
func (k *keeper) gone(err error) {
	k.mu.Lock()
	here := !k.left
	k.left = true
	k.mu.Unlock()
	if !here {
		return
	}
	k.tenure.end()
	if k.inLine {
		k.c.line.Left(k.crew)
	}
	k.end(k.hold, err)
	k.c.life.leave()
}

// check asks the store, after any renewal that is under way.
func (k *keeper) check(ctx context.Context) error {
	if err := k.valid(); err != nil {
		return err
	}
	k.mu.Lock()
	turn := k.inTurn()
	k.mu.Unlock()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
		return k.ask(ctx, k, k.claim.TTL)
	case <-ctx.Done():
		return ctx.Err() // not its cause, which may be another hold's loss
	}
}

// unlock ends the hold and gives the lease on or back. Its first call decides; later ones return the same, after it. (Not a
// sync.Once: who waits for a mutex stops the clock of a synctest bubble.)
func (k *keeper) unlock() error {
	k.mu.Lock()
	first := !k.unlocked
	k.unlocked = true
	if !first && !k.settled && k.done == nil {
		k.done = make(chan struct{})
	}
	done := k.done
	k.mu.Unlock()
	if !first {
		if done != nil {
			<-done
		}
		return k.outcome
	}
	err := k.doUnlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.outcome, k.settled = err, true
	if k.done != nil {
		close(k.done)
	}
	return err
}

func (k *keeper) doUnlock() error {
	k.heedParent()
	now := k.c.now()
	k.mu.Lock()
	cause := ErrUnlocked
	if k.until.after(now) <= 0 {
		cause = errExpired // a deadline that has passed unnoticed must not be called an unlock
	}
	asking := k.stop != nil // under way, so it has the turn
	ended := k.conclude(now.at, cause)
	cause, cancel, fit := k.cause, k.cancel, k.fit(now)
	k.mu.Unlock()
	if ended {
		k.announce(cause, cancel)
	}
	if asking { // has been told to stop: wait until it has. No renewal or Check begins after, as the hold is over
		k.turn <- struct{}{}
		<-k.turn
		k.mu.Lock()
		fit = k.fit(now)
		k.mu.Unlock()
	}
	if !errors.Is(cause, ErrUnlocked) {
		return k.abandoned(cause)
	}
	k.held += now.at.Sub(k.handed)
	if k.inLine && k.c.pass(k.tenure, now, fit) {
		k.c.leased(k.parent, EventPass, k.tenure)
		k.end(k.hold, nil)
		k.c.life.leave()
		return nil
	}
	return k.giveUp(now.at)
}

// giveUp gives the lease back to the store.
func (k *keeper) giveUp(now time.Time) error {
	k.mu.Lock()
	k.halt()
	k.mu.Unlock()
	k.c.pace.saw(k.claim.Key, k.passes+1, k.held, now)
	err := k.c.release(k.parent, k.claim, k.hold, k.budget())
	switch {
	case !errors.Is(err, backend.ErrLost):
	case k.c.remaining(k.until) <= 0: // the lease ran out by itself while the release was on its way
		err = nil
	default:
		err = lostBecause(fmt.Errorf("the store says so: %w", err))
	}
	k.gone(err)
	return err
}

// abandoned is Unlock's work after the hold ended for another cause.
func (k *keeper) abandoned(cause error) error {
	k.c.life.follow()
	if errors.Is(cause, ErrMaxHold) {
		defer k.c.life.leave()
		_ = k.c.release(k.parent, k.claim, k.hold, k.budget())
		k.gone(cause)
		return cause
	}
	// Lost: very likely gone in the store as well. If not (a renewal got through that we never heard of), let it go.
	go func() {
		defer k.c.life.leave()
		_ = k.c.release(k.parent, k.claim, k.hold, k.budget())
	}()
	return cause
}

// budget is how long a release may take. It is cancelled by Close alone; the caller's ctx gives values.
func (k *keeper) budget() time.Duration { return orTTL(k.c.cfg.ReleaseTimeout, k.claim.TTL) }

// lostChan returns the channel that is closed on loss.
func (k *keeper) lostChan() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost == nil {
		k.lost = make(chan struct{})
		if errors.Is(k.cause, ErrLost) {
			close(k.lost)
		}
	}
	return k.lost
}

// A site is where a lock was taken.
type site [3]uintptr // of Do or All, of Lead, and the caller's

// String names the first caller outside of this package.
func (s *site) String() string {
	frames := runtime.CallersFrames(s[:])
	for {
		frame, more := frames.Next()
		if !more || !strings.Contains(frame.Function, "/holdfast/locker.") {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
	}
}
