package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// A keeper owns one hold from grant to release. It renews the lease every third of its TTL and knows the deadline until
// which the hold is provably good. It is two timers and no goroutine while nothing happens.
//
// The deadline only moves by a confirmed renewal, to a time counted from before that renewal was sent. At the deadline the
// hold is lost, whatever is on the wire: the expiry timer waits for no I/O (rueidislock was 1.4 s late, waiting for a reply).
// A hold that ended never comes back, even if a late reply says yes: another may have been granted the key in between.
type keeper struct {
	c      *core
	baton           // what the store granted
	crew   *crewKey // the local line it came from, and goes back to; nil if from none
	hold   Hold
	ctx    context.Context // the guard's; a child of Lock's
	cancel context.CancelCauseFunc
	end    func(Hold, error) // tells the observer
	caller [6]uintptr        // who called Lock, for the log

	turn chan struct{} // taken by whoever asks the store about this hold: one renewal at a time, none beside a release

	dropped atomic.Bool // nobody has the guard any more
	refuted atomic.Bool // the store said that the lease is gone: not to be handed on, even if Unlock was called first

	mu      sync.Mutex // guards what follows
	until   deadline
	ended   time.Time          // when
	cause   error              // why the hold ended; nil while it lasts
	over    chan struct{}      // closed when the hold ends; made by a renewal that waits for its turn
	done    chan struct{}      // made by the first Unlock, closed when outcome is there
	outcome error              // what Unlock returns; written once before done is closed, read only after
	lost    chan struct{}      // closed on loss; made when asked for
	stop    context.CancelFunc // ends the renewal that is under way
	retry   *waiting.Backoff   // between renewals without an answer
	expiry  *time.Timer        // at the deadline
	renewal *time.Timer
	limit   *time.Timer // at MaxHold
}

// keep starts to look after a lease. The caller is counted in c.life.
func (c *core) keep(ctx context.Context, b baton, crew *crewKey, hold Hold) *keeper {
	k := &keeper{c: c, baton: b, crew: crew, hold: hold, until: b.lease.until, turn: make(chan struct{}, 1)}
	runtime.Callers(4, k.caller[:]) // not Callers, keep, core.acquire, Client.acquire
	ctx, k.end = c.begin(ctx, OpHold, hold)
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	c.life.follow()
	c.mu.Lock()
	c.keepers[k] = struct{}{}
	cut := c.cut
	c.mu.Unlock()
	if cut { // granted while Close ran out of time
		defer k.finish(lostBecause(ErrClosed)) // runs last, without k.mu
	}

	k.mu.Lock() // before any of the timers can look
	defer k.mu.Unlock()
	k.expiry = time.AfterFunc(time.Until(k.until.at), k.expire)
	// A lease that was handed over is short until it is renewed for the first time.
	k.renewal = time.AfterFunc(min(k.interval(), time.Until(k.until.at)/3), k.renew)
	if d := c.cfg.MaxHold; d > 0 {
		k.limit = time.AfterFunc(d, func() { k.finish(ErrMaxHold) })
	}
	return k
}

// interval is a third of the TTL, a tenth more or less, so that locks taken together are not renewed together.
func (k *keeper) interval() time.Duration {
	third := k.claim.TTL / 3
	return third - third/10 + rand.N(third/5+1)
}

// expire ends the hold at its deadline, or sets the timer again if a renewal has moved it.
func (k *keeper) expire() {
	k.mu.Lock()
	rest := k.c.remaining(k.until)
	if rest > 0 && (k.cause == nil || errors.Is(k.cause, ErrMaxHold)) {
		k.expiry.Reset(rest)
	}
	k.mu.Unlock()
	if rest > 0 {
		return
	}
	if cause := k.finish(errExpired); errors.Is(cause, ErrMaxHold) {
		k.gone(cause, false) // nobody unlocked it meanwhile
	}
}

var errExpired = lostBecause(errors.New("the lease ran out without a confirmed renewal"))

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
func (k *keeper) finish(cause error) error {
	k.mu.Lock()
	if k.cause != nil {
		defer k.mu.Unlock()
		return k.cause
	}
	k.cause, k.ended = cause, time.Now()
	if k.over != nil {
		close(k.over)
	}
	maxed := errors.Is(cause, ErrMaxHold)
	for _, t := range []*time.Timer{k.renewal, k.limit, k.expiry} {
		if t != nil && !(maxed && t == k.expiry) { // what MaxHold ended stays in the books for as long as its lease
			t.Stop()
		}
	}
	if k.stop != nil {
		k.stop()
	}
	lost := errors.Is(cause, ErrLost)
	if lost && k.lost != nil {
		close(k.lost)
	}
	k.mu.Unlock()

	k.cancel(cause)
	if errors.Is(cause, ErrUnlocked) {
		return cause // unlock goes on, and calls gone when the store knows
	}
	k.c.cfg.Logger.Warn("holdfast: hold ended", "key", k.hold.Key, "token", k.hold.Token, "cause", cause, "locked at", k.site())
	if !maxed {
		k.gone(cause, false)
	}
	return cause
}

// gone takes the keeper out of the books, once, and its baton out of the local line's, unless it was passed on.
func (k *keeper) gone(err error, passed bool) {
	k.c.mu.Lock()
	_, here := k.c.keepers[k]
	delete(k.c.keepers, k)
	k.c.mu.Unlock()
	if !here {
		return
	}
	if k.crew != nil && !passed {
		k.c.line.Left(*k.crew)
	}
	k.end(k.hold, err)
	k.c.life.leave()
}

// renew is the renewal timer's function.
func (k *keeper) renew() {
	if k.dropped.Load() {
		_ = k.finish(errLeaked)
		return
	}
	k.mu.Lock()
	if k.over == nil {
		k.over = make(chan struct{})
	}
	over, ended := k.over, k.cause != nil
	k.mu.Unlock()
	if ended {
		return
	}
	select {
	case k.turn <- struct{}{}: // waits behind Checks in line: none of them can starve it, and none has to set its timer
	case <-over:
		return
	}
	err := k.ask(context.Background(), k.claim.TTL/6)
	<-k.turn // before the timer is set: it may be due at once
	if err != nil {
		k.again()
	}
}

// again sets the renewal timer to the next sleep of the backoff, unless the hold has ended.
func (k *keeper) again() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cause != nil {
		return
	}
	if k.retry == nil {
		k.retry = waiting.NewBackoff(min(retryFirst, k.claim.TTL/12), min(retryMost, k.claim.TTL/12))
	}
	k.renewal.Reset(k.retry.Next())
}

// check asks the store, after any renewal that is under way.
func (k *keeper) check(ctx context.Context) error {
	if err := k.valid(); err != nil {
		return err
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
		return k.ask(ctx, k.claim.TTL)
	case <-ctx.Done():
		return ctx.Err() // not its cause, which may be another hold's loss
	}
}

// ask renews the hold once, within limit, and acts on the answer. The caller has the turn. The error is the store's, or the
// cause if the hold ended.
func (k *keeper) ask(ctx context.Context, limit time.Duration) error {
	k.mu.Lock()
	if k.cause != nil {
		defer k.mu.Unlock()
		return k.cause
	}
	k.c.life.follow() // the hold may end, and with it its own place in the count, while the store is asked
	defer k.c.life.leave()
	ctx, k.stop = context.WithTimeout(ctx, max(min(limit, k.c.remaining(k.until)), time.Millisecond))
	defer k.stop()
	k.mu.Unlock()

	ctx, end := k.c.begin(ctx, OpRenew, k.hold)
	sent := k.c.now() // before the request: see deadline
	err := k.c.b.Renew(ctx, k.claim)
	end(k.hold, err)
	return k.answered(sent, err)
}

// answered takes a renewal's answer. Only a yes moves the deadline, only a definite no ends the hold; without an answer the
// hold is as good as before, and the store is asked again soon.
func (k *keeper) answered(sent instant, err error) error {
	if errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrForeign) {
		k.refuted.Store(true)
		return k.finish(lostBecause(fmt.Errorf("the store says so: %w", err)))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cause != nil {
		return k.cause
	}
	if k.c.remaining(k.until) <= 0 {
		// Too late, even for a yes: belief had ended. The expiry timer, which is due, ends the hold.
		k.expiry.Reset(0)
		return errExpired
	}
	if err != nil {
		return err // renew asks again soon; a Check leaves the timer as it is
	}
	k.retry = nil
	if d := deadlineOf(sent, k.claim.TTL); k.c.until(d).After(k.c.until(k.until)) {
		k.until = d
	}
	k.renewal.Reset(time.Until(sent.at.Add(k.interval())))
	return nil
}

// unlock ends the hold and releases it in the store. Its first call decides; later ones return the same, after it. (Not a
// sync.Once: who waits for a mutex stops the clock of a synctest bubble.)
func (k *keeper) unlock() error {
	k.mu.Lock()
	first := k.done == nil
	if first {
		k.done = make(chan struct{})
	}
	k.mu.Unlock()
	if first {
		k.outcome = k.doUnlock()
		close(k.done)
	}
	<-k.done
	return k.outcome
}

func (k *keeper) doUnlock() error {
	k.c.life.follow()
	defer k.c.life.leave()
	_ = k.valid() // a deadline that has passed unnoticed must not be called an unlock
	cause := k.finish(ErrUnlocked)
	k.turn <- struct{}{} // a renewal that was under way has been told to stop, and has; none begins after
	defer func() { <-k.turn }()

	ctx := k.ctx // for its values; release is cancelled by Close alone
	budget := orTTL(k.c.cfg.ReleaseTimeout, k.claim.TTL)
	switch {
	case errors.Is(cause, ErrUnlocked):
		if k.crew != nil && !k.refuted.Load() && k.c.pass(*k.crew, k.baton, k.deadline()) {
			k.gone(nil, true)
			return nil
		}
		err := k.c.release(ctx, k.claim, k.hold, budget)
		switch {
		case !errors.Is(err, backend.ErrLost):
		case k.c.remaining(k.until) <= 0: // the lease ran out by itself while the release was on its way
			err = nil
		default:
			err = lostBecause(fmt.Errorf("the store says so: %w", err))
		}
		k.gone(err, false)
		return err
	case errors.Is(cause, ErrMaxHold):
		_ = k.c.release(ctx, k.claim, k.hold, budget)
		k.gone(cause, false)
		return cause
	}
	// Lost: very likely gone in the store as well. If not (a renewal got through that we never heard of), let it go.
	k.c.life.follow()
	go func() {
		defer k.c.life.leave()
		_ = k.c.release(ctx, k.claim, k.hold, budget)
	}()
	return cause
}

// deadline is until when the lease is good.
func (k *keeper) deadline() deadline {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.until
}

// leak is called by the garbage collector when the guard was dropped without Unlock. The hold is renewed no more, and not
// released either: code that copied the value out of the guard may still be at work, and the lease gives it until its end.
// It only leaves a note for the renewal timer: a clean-up runs outside of every synctest bubble and must not touch timers.
func (k *keeper) leak() { k.dropped.Store(true) }

var errLeaked = lostBecause(errors.New("its guard was dropped without Unlock"))

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

// site is where the lock was taken: the first caller outside of this package.
func (k *keeper) site() string {
	frames := runtime.CallersFrames(k.caller[:])
	for {
		frame, more := frames.Next()
		if !more || !strings.Contains(frame.Function, "/holdfast/locker.") {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
	}
}
