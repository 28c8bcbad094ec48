package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"weak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// The states. A lease is what the store granted to this process, a hold one caller's use of it; one
// field each says in which state it is, and these are all who move it:
//
//	lease          from        by
//	leaseGood      –           leaseOf, with the grant
//	leaseLast      good        tick, at MaxHold: renewed no more, until the deadline or its Unlock
//	leaseReleased  good        remove: the store is told, or nobody tells it (Detach)
//	               last        hold.unlock, or remove
//	leaseLost      good, last  setLost: the deadline, a refused renewal or Check (a loss signal
//	                           has one made), a dropped guard, Close out of time; lease.cause says
//	                           which
//
//	hold           from        by
//	holdGood       –           newHold
//	holdEnded      good        hold.end: a loss, MaxHold or Close; hold.cause says which
//	holdUnlocking  good, ended hold.unlock, the first; hold.end then sets the cause if none is set
//	holdUnlocked   unlocking   hold.unlock: hold.outcome is what each Unlock returns
//
// Both ends are for good: a lease that is released or lost, and a hold that has a cause, never go
// back. The pairs that exist; "none" is a lease without a hold, before the first and between two:
//
//	               none   good   ended             unlocking   unlocked
//	leaseGood      yes    yes    by Close          yes         -
//	leaseLast      -      -      by MaxHold        -           -
//	leaseReleased  yes    -      -                 yes         yes
//	leaseLost      yes    (*)    by any but Unlock yes         yes
//
// (*) for a moment: setLost and hold.end are two steps. hold.valid looks at the deadline itself, so
// at the deadline belief is over at once.
//
// The mutexes, in the order in which they may be taken; who has one takes none to its left:
//
//	heartbeats.mu → cohort.mu → core.mu   (an answer goes to the cohort; then that leaves the map)
//	cohort.mu, renewals.mu, resources → lease.mu
//	nestedWaits.mu → lease.mu
//	pending.mu                            (with nothing beside it)
//
// A lease's mutex guards its hold, too. No request is made, no observer called and no channel
// waited for with any of them.

type leaseState uint8

const (
	leaseGood leaseState = iota
	leaseLast
	leaseReleased
	leaseLost
)

type holdState uint8

const (
	holdGood holdState = iota
	holdEnded
	holdUnlocking
	holdUnlocked
)

// A way is how Unlock ends a hold.
type way uint8

const (
	byUnlock way = iota
	byForgo      // without the mark of a job, see OncePer
	byDetach     // without a release, see Detach
)

// An endHook is what a recipe has done at the end of a hold, see atEnd. It is called
//
//   - after a loss, MaxHold or Close with the cause and no claim, in a goroutine of its own;
//     nothing is released by it;
//   - by Unlock with neither, when belief is over: it may take its time, the lease is renewed;
//   - by Unlock with the claim, right before the lease is handed on or released, with why the hold
//     had ended before; nil if it lasted. What it puts into the claim goes to the store with the
//     release, and its error is joined to Unlock's;
//   - by Unlock with the cause and no claim, if the release finds that the hold was lost.
//
// Leases that are handed on are a cohort's, whose holds have no hook that puts anything into a
// claim.
type endHook func(cause error, claim *backend.Claim) error

// A lease is what the store granted to this process: under one hold, or under one after the other
// in a cohort. It is renewed every third of its TTL, and has the deadline until which it is
// provably good. It is one timer and no goroutine while nothing happens, and handing it on does not
// touch the timer.
//
// The deadline only moves by a confirmed renewal, to a time counted from before that renewal was
// sent. At the deadline the lease is lost, whatever is in flight: the timer waits for no I/O
// (rueidislock was 1.4 s late, waiting for a reply). A lease that was lost never comes back, even
// if a late reply says yes: another may have been granted the key in between.
type lease struct {
	core  *core
	claim backend.Claim
	info  Hold // key, class and mode, for the observer; never changes

	cohort sharer // nil without one

	// In a cohort, guarded by its mutex; without one, only its hold uses them.
	token uint64 // the present hold's
	// how many tokens above that belong to the grant: one for each time it is handed on
	spare    int
	passes   int    // how often it was handed on
	tookOver uint64 // by the present hold, see Hold.TookOver
	granted  instant
	waiter   *waiter // that got the lease for the present hold; nil for the first

	stored []byte // what was stored when the lease was granted, for a Store

	mu    sync.Mutex // guards what follows, and the hold
	hold  *hold      // the present one; nil before the first, and while the lease is handed on
	until instant    // the deadline
	state leaseState
	// a record in the store names it, see deadlock.go: it is handed on no more
	named   bool
	waiting bool // a renewal is due and waits for its turn, see renewals
	// it was waited for in the store's queue, so that those behind may not know of it; never
	// changes
	queued bool
	cause  error // why it was lost; nil if it was not
	// Ends its operation, for a lease that the acquirer got, once; else nil.
	finish  func(Hold, error)
	renewAt instant
	watchAt instant // when to begin to watch for its loss; zero: not, or begun
	unwatch context.CancelFunc
	timer   *time.Timer // for whichever of the three is next
	// closed when the renewal or Check under way has ended; nil if none is
	renewing chan struct{}
	stop     context.CancelFunc // ends that
	retry    *waiting.Backoff   // between renewals without an answer; nil after an answer
	// why the store has not confirmed the lease since it last did; nil if it was not asked
	trouble error

	firstHold hold // most leases have no other, so it is made with them
}

// A sharer is whose lease goes from hold to hold, and in whose name one goroutine asks the store: a
// cohort.
type sharer interface {
	noteAttempt()          // the store owes an answer from now on
	noteRefusal(err error) // its answer: not yet
	noteTrouble(err error) // why there was none

	// pass hands the lease of a hold that is over to the next, if it may, and reports whether it
	// did.
	pass(l *lease, now instant) bool

	// removed is called when the lease is lost, or about to be released.
	removed(ctx context.Context, l *lease)
}

// A hold is one caller's use of a lease, until it ends.
type hold struct {
	lease  *lease
	info   Hold
	parent context.Context // Lock's, as the observer has it
	site   site
	maxAt  instant // when MaxHold ends it; zero without

	// Guarded by lease.mu.
	state   holdState
	how     way   // of its Unlock
	hooking bool  // onEnd is at work after a loss, and is counted
	cause   error // why it ended; nil while it lasts
	ended   instant
	onEnd   endHook           // nil if nothing is to be done; no other once there is a cause
	report  func(Hold, error) // ends the operation that the observer saw begin; nil: it was called
	outcome error             // what Unlock returns, when it is holdUnlocked
	done    chan struct{}     // made by a second Unlock that waits for the first
	lost    chan struct{}     // closed on loss; made when asked for
	ctx     context.Context
	cancel  context.CancelCauseFunc // of ctx; both made when somebody looks
	strong  *handle                 // keeps the guard, until the first renewal
	weak    weak.Pointer[handle]    // knows it, from then on
}

var noHandle weak.Pointer[handle]

var (
	errExpired = lostBecause(ErrExpired)
	errLeaked  = lostBecause(ErrLeaked)
)

// closedChan stands for a channel that was closed on loss.
var closedChan = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// valid returns nil while the hold is provably good, else why it is not. It looks at the clock
// itself: a timer can be late.
func (h *hold) valid() error {
	l := h.lease
	now := l.core.now()
	var expired error
	l.mu.Lock()
	cause := h.cause
	if cause == nil && now >= l.until { // safeguard: belief
		expired = l.expiry()
	}
	l.mu.Unlock()
	if expired != nil {
		_ = l.lose(expired)
		return expired
	}
	return cause
}

// leaked reports whether the guard was dropped without Unlock. Its lease is then renewed no more,
// and not released either: code that copied the value out of the guard may still be at work, and
// the lease gives it until its end. The caller has lease.mu.
func (h *hold) leaked() bool {
	if h.strong != nil {
		h.weak, h.strong = weak.Make(h.strong), nil
		return false
	}
	return h.weak != noHandle && h.weak.Value() == nil
}

// end ends the hold because of cause, unless it has ended before, and reports whether it lasted
// until now: a deadline that has passed unnoticed is a loss, and must not be called an unlock. It
// is immediate: no I/O, nothing waited for. After MaxHold and Close the lease is still there, until
// Unlock or the deadline, and after a loss it is lost as well.
func (h *hold) end(now instant, cause error) (lasted bool) {
	// If the parent has ended first, the hold's context says so: it is made before the hold has a
	// cause, and so as the parent's child. Without a context yet nobody has looked, and what is
	// made later says what ended the hold.
	if h.parent.Err() != nil {
		h.context()
	}
	l := h.lease
	l.mu.Lock()
	if now >= l.until && errors.Is(cause, ErrUnlocked) { // safeguard: unlock-expired
		cause = l.expiry()
	}
	first := h.cause == nil
	if first {
		h.cause, h.ended, h.strong = cause, now, nil
		if h.state == holdGood {
			h.state = holdEnded
		}
	}
	// What follows calls others, and so is done without the mutex: who sees the context end may
	// call Unlock, or Value, at once, and finds the cause.
	cancel, stands, byUnlock := h.cancel, h.cause, errors.Is(cause, ErrUnlocked)
	if !byUnlock {
		h.endedOtherwise(first, cause)
	}
	l.mu.Unlock()
	if first && cancel != nil {
		cancel(cause)
	}
	if first && !byUnlock {
		l.core.cfg.Logger.Warn("holdfast: hold ended", "key", h.info.Key, "token", h.info.Token,
			"cause", cause, "locked at", &h.site)
	}
	// A loss is reported at once: its Unlock may never come, and Close must not wait for it. After
	// MaxHold and Close the lease is still there, and the hold is finished by its Unlock.
	if errors.Is(cause, ErrLost) {
		if errors.Is(stands, ErrUnlocked) { // it was lost while its Unlock was at work
			stands = cause // safeguard: lost-in-unlock
		}
		h.finish(stands)
	}
	return first && byUnlock
}

// endedOtherwise closes the channel of losses, and starts the hook, if the hold ended without its
// Unlock. The caller has lease.mu.
func (h *hold) endedOtherwise(first bool, cause error) {
	lost := errors.Is(cause, ErrLost)
	// safeguard: lost-behind-close
	if lost && h.lost != nil && h.lost != closedChan && !errors.Is(h.cause, ErrMaxHold) &&
		!errors.Is(h.cause, ErrUnlocked) {
		close(h.lost)
		h.lost = closedChan
	}
	// In the other states Unlock calls it. safeguard: hook-at-loss
	if first && h.onEnd != nil && h.state == holdEnded {
		h.hooking = true
		h.lease.core.add()
		go h.runHook(h.onEnd, cause)
	}
}

// runHook runs the hook of a hold that ended without an Unlock, which may take its time: what ended
// the hold does not wait for it. Close does if it has time. An Unlock that comes meanwhile calls
// the hook as well: so a hook that closes something closes it once, and has the second call wait
// for the first.
func (h *hold) runHook(hook endHook, cause error) {
	if err := hook(cause, nil); err != nil {
		h.lease.core.cfg.Logger.Warn("holdfast: could not close what a guard protected",
			"key", h.info.Key, "error", err)
	}
	h.hookDone()
}

// hookDone has Close wait for the hook no more.
func (h *hold) hookDone() {
	h.lease.mu.Lock()
	counted := h.hooking
	h.hooking = false
	h.lease.mu.Unlock()
	if counted {
		h.lease.core.done()
	}
}

// finish reports the end once and drops the reference that Close waits for.
func (h *hold) finish(err error) {
	h.lease.mu.Lock()
	report := h.report
	h.report = nil
	h.lease.mu.Unlock()
	if report != nil {
		report(h.info, err)
		h.lease.core.done()
	}
}

// deadline returns until when the lease is provably good.
func (l *lease) deadline() instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// expiry is the loss of a lease that has run out, with what kept it from being renewed. The caller
// has mu.
func (l *lease) expiry() error {
	// No renewal failed: the machine slept, or the process was stopped. safeguard: loss-says-why
	if l.trouble == nil {
		return errExpired
	}
	return lostBecause(fmt.Errorf("%w: %w", ErrExpired, l.trouble))
}

// expired reports whether the deadline has passed.
func (l *lease) expired(now instant) bool { return now >= l.deadline() }

// lost returns why the lease was lost; nil if it was not.
func (l *lease) lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// holder returns the present hold, or nil if there is none or its Unlock is under way: for those
// who end holds, or ask the store for one.
func (l *lease) holder() *hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil || l.hold.state >= holdUnlocking {
		return nil
	}
	return l.hold
}

// good reports whether the lease may be handed on, and is good for a while yet, as far as is known.
func (l *lease) good(now instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != leaseGood || l.named { // safeguard: named-lease
		return false
	}
	return time.Duration(l.until-now) >= min(l.claim.TTL/2, l.core.cfg.Wait.Fallback)
}

// lose ends the lease, and with it its hold, because of cause, and returns the cause that stands.
func (l *lease) lose(cause error) error {
	l.mu.Lock()
	h, cause, first := l.setLost(cause)
	l.mu.Unlock()
	if first {
		l.endLost(h, cause)
	}
	return cause
}

// setLost takes note that the lease is lost, unless it was lost or released before, and returns its
// hold and the cause that stands. The caller has mu.
func (l *lease) setLost(cause error) (h *hold, stands error, first bool) {
	if l.state >= leaseReleased {
		return nil, l.cause, false
	}
	l.state, l.cause = leaseLost, cause
	l.stopTimers()
	return l.hold, cause, true
}

// endLost ends the hold of a lease that was lost just now, and has its cohort get another lease.
// Belief is over before anybody of this process asks the store for the key again.
func (l *lease) endLost(h *hold, cause error) {
	ctx := context.Background()
	if h != nil {
		ctx = h.parent
		h.end(l.core.now(), cause)
	}
	l.remove(ctx)()
}

// stopTimers ends the renewals, the watch and the timer. What of them is under way is not waited
// for:
// it finds the lease's state when it is back. The caller has mu.
func (l *lease) stopTimers() {
	l.timer.Stop()
	if l.unwatch != nil {
		l.unwatch()
	}
	if l.stop != nil {
		l.stop()
	}
}

// remove takes a lease that is lost, or about to be released, from its Client and its cohort: those
// who wait in it are an acquirer's from now on. Its first attempt may come before the release or
// after it: before, it is queued and handed the key; after, it is granted if it is the first.
// finish is to be called at the end of the release, if there is one: it ends the operation for the
// observer.
func (l *lease) remove(ctx context.Context) (finish func()) {
	c := l.core
	l.mu.Lock()
	if l.state < leaseReleased {
		l.state = leaseReleased
	}
	l.stopTimers()
	cause, report := l.cause, l.finish
	l.finish = nil // it is told of once
	l.mu.Unlock()
	if l.cohort != nil {
		l.cohort.removed(ctx, l) // from here on nobody is given another token
	} else {
		c.mu.Lock()
		delete(c.alone, l)
		c.mu.Unlock()
	}
	if report == nil {
		return func() {}
	}
	info := l.info
	info.Token = l.token
	return func() { report(info, cause) }
}

// release tells the store that a lease is over, which is nobody's by now. claim is what
// claimForRelease made of its own, with what a hook has put into it; nil is that without a hook.
//
// Safety: no hold of this process believes in the lease any more, as the caller has ended the last,
// or none has begun. The release names the claim's owner, which no other claim has, so it ends
// nothing but this lease however late the store executes it; a lease that another has got by then
// is another owner's (TestUnlockOfATakenLockSaysSo, TestUnlockClaimsNoLossAfterAnOutage,
// backendtest release).
func (l *lease) release(ctx context.Context, claim *backend.Claim, store backend.Backend) error {
	defer l.remove(ctx)()
	if claim == nil {
		claim = l.core.claimForRelease(l)
	}
	err := l.core.release(ctx, claim, store,
		Hold{Key: l.info.Key, Class: l.info.Class, Mode: l.info.Mode, Token: l.token})
	// safeguard: mark-unconfirmed
	if errors.Is(err, errReleasedBefore) && claim.Save == nil && !l.expired(l.core.now()) {
		return nil // until now only that release can have ended the hold, and left its mark
	}
	return err
}

// releaseBehind releases a lease that its caller cannot use, and goes on behind the caller if that
// takes long: the caller's time may be over, which bounds no release.
func (l *lease) releaseBehind(ctx context.Context) {
	l.core.add()
	behind(func() { // safeguard: unusable-behind
		defer l.core.done()
		_ = l.release(ctx, nil, nil)
	})
}

// observeLease reports to the EventObserver what becomes of a lease. Once it was passed on, it is
// another's to look at.
func (c *core) observeLease(ctx context.Context, kind string, l *lease) {
	granted := Lease{Claim: l.claim.Meta}
	if kind == EventGrant {
		granted.Until = c.toTime(l.deadline())
		granted.Token, granted.Passes, granted.TookOver = l.token, l.passes, l.tookOver
	}
	c.events.Event(ctx, Event{Kind: kind, Lease: granted})
}
