package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// newHold makes a hold of the lease for g; report ends its operation for the observer. The caller
// is counted; the count goes on to the hold.
//
// The lease may have been lost since it was granted or handed on, and Close may have begun: both
// look for holds to end, and would not find this one. So it looks for them, after it can be found:
// one of the two sees the other (TestSlowHandOver, TestPendingCallIsNotGrantedAfterClose).
//
// Until the first renewal the hold just keeps the guard, which costs nothing, and most holds are
// over by then. The renewals notice when it is dropped, see leaked.
func (c *core) newHold(ctx context.Context, l *lease, info Hold, report func(Hold, error), o *call,
	g *handle,
) *hold {
	l.mu.Lock()
	h := &l.firstHold
	if h.lease != nil {
		h = &hold{}
	}
	h.lease, h.info, h.parent, h.report, h.site, h.strong = l, info, ctx, report, o.site, g
	l.hold = h
	lost := l.cause
	if lost == nil && o.maxHold > 0 {
		now := c.now()
		// One that is longer than there are instants lasts to the last. safeguard: max-hold-fits
		h.maxAt = now + min(instant(o.maxHold), math.MaxInt64-now)
		l.timer.Reset(l.next(now))
	}
	l.mu.Unlock()
	switch { // The lease may have ended before the hold existed; end the hold the same way.
	case lost != nil: // safeguard: refuted-between-holds
		h.end(c.now(), lost)
		// Again: before it was the cohort's, its loss was nothing to that.
		// safeguard: lost-before-given
		l.remove(ctx)()
	case c.cut.Err() != nil:
		_ = l.lose(lostBecause(ErrClosed))
	case c.closing.Err() != nil: // safeguard: granted-at-close
		h.end(c.now(), ErrClosed)
	}
	return h
}

// atEnd has the end of the hold call f, before what it called until now. If the hold has ended
// already, it returns why, and f is not called.
func (h *hold) atEnd(f endHook) error {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if before := h.onEnd; h.cause == nil && before != nil {
		h.onEnd = func(cause error, claim *backend.Claim) error {
			return errors.Join(f(cause, claim), before(cause, claim)) // safeguard: hooks-all-called
		}
	} else if h.cause == nil {
		h.onEnd = f
	}
	return h.cause
}

// hooked reports whether something is to be done at its end.
func (h *hold) hooked() bool {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	return h.onEnd != nil
}

// goodUntil is until when belief lasts, or did: of a hold that has ended until its end.
func (h *hold) goodUntil() time.Time {
	l := h.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.cause != nil {
		return l.core.toTime(min(l.until, h.ended))
	}
	return l.core.toTime(l.until)
}

// unlock ends the hold and hands its lease on, or releases it. Its first call decides how; later
// ones return the same, after it: so an Unlock that comes while a Detach or a Forgo is at work has
// no say, and none that comes after Unlock has. A lease that MaxHold has ended counts as released
// from here on, so that its deadline, which may come meanwhile, is no loss. (Not a sync.Once: a
// goroutine that waits for a mutex stops the clock of a synctest bubble.)
func (h *hold) unlock(how way, store backend.Backend) error {
	l := h.lease
	l.mu.Lock()
	if h.state >= holdUnlocking {
		if h.done == nil {
			h.done = make(chan struct{})
			if h.state == holdUnlocked {
				close(h.done)
			}
		}
		done := h.done
		l.mu.Unlock()
		skip(store)
		<-done
		return h.outcome
	}
	h.state, h.how = holdUnlocking, how
	if l.state == leaseLast { // see above
		l.state = leaseReleased
	}
	l.mu.Unlock()
	err := h.unlockFirst(store)
	l.mu.Lock()
	defer l.mu.Unlock()
	h.state, h.outcome = holdUnlocked, err
	if h.done != nil {
		close(h.done)
	}
	return err
}

// unlockFirst is the Unlock that decides. First it finds out why the hold ended: cause is nil if it
// lasted until this Unlock. Then there is one outcome of four: the hold was lost; the lease is
// passed on; it is detached, and stays in the store as it is; or it is released.
//
// Safety: belief ends first, then the hook is called, and only then the lease is handed on or the
// store is told: so nobody works under a hold whose key another may have by this Unlock, and what a
// guard protects is closed before the next opens its own. No renewal is in flight beside the
// release: settle waits for one, and one that the timer begins after that is cancelled by remove,
// and its answer finds the lease released, which is for good (TestUnlockIsNoLoss,
// TestRenewalIsJoinedBeforeRelease, TestScopedClosesInUnlockBeforeTheRelease,
// TestLeaseRefutedDuringUnlockIsNotHandedOn).
func (h *hold) unlockFirst(store backend.Backend) error {
	now, lasted := h.endByUnlock()
	cause := h.settle(now, lasted)
	claim := &h.lease.claim
	if h.lease.queued { // those behind it may want to know who held
		claim = h.lease.core.claimForRelease(h.lease)
	}
	var err, hookErr error
	if h.onEnd != nil {
		with := *claim // a renewal may be reading the lease's own
		claim = &with
		hookErr = h.onEnd(cause, claim)
	}
	switch {
	case cause != nil && !errors.Is(cause, ErrMaxHold):
		err = h.unlockLost(cause)
	case cause == nil && h.lease.cohort != nil && h.lease.cohort.pass(h.lease, now):
		if c := h.lease.core; c.events != nil { // the lease is another hold's by now
			c.observeLease(h.parent, EventPass, h.lease)
		}
	case cause == nil && h.how == byDetach && hookErr == nil: // safeguard: detached-closed
		h.lease.remove(h.parent)()
	default:
		err = h.unlockReleased(now, cause, claim, store)
	}
	h.finish(err)
	if hookErr != nil {
		err = errors.Join(err, hookErr)
	}
	return err
}

// endByUnlock ends belief, and has the hook do what takes its time while the lease is still
// renewed. It returns the time then, and whether the hold and its lease have lasted until then:
// what is lost while the hook is at work is a loss to the caller, too, as another may have been
// granted the key while what this one protects was open.
func (h *hold) endByUnlock() (now instant, lasted bool) {
	l := h.lease
	now = l.core.now()
	if lasted = h.end(now, ErrUnlocked); h.onEnd == nil {
		return now, lasted
	}
	l.mu.Lock()
	h.strong, h.weak = nil, noHandle // its guard is not dropped: it is being unlocked
	if h.maxAt = 0; l.state == leaseGood {
		l.timer.Reset(l.next(now))
	}
	l.mu.Unlock()
	// An error of the hook is dropped here: it says so again when it has the claim.
	_ = h.onEnd(nil, nil)
	// The hook may have taken its time. safeguard: closed-for-long
	now = l.core.now()
	return now, lasted && l.lost() == nil && !l.expired(now) // safeguard: lost-in-hook
}

// settle waits for a renewal that is in flight, which it cancels, and takes the lease from the
// hold. It returns why the hold ended before its Unlock; nil if it lasted, or Close ended it and
// the lease was good until now. A loss that the renewal told of comes after an Unlock that was in
// time: then the release says what Unlock returns, and the lease is not handed on.
func (h *hold) settle(now instant, lasted bool) (cause error) {
	l := h.lease
	l.mu.Lock()
	cause, under, lost := h.cause, l.renewing, l.cause
	if under != nil {
		// No renewal beside a release, or past it; its answer may still say that the lease is lost.
		l.stop()
		l.mu.Unlock()
		<-under
		l.mu.Lock()
	}
	l.hold = nil
	defer l.mu.Unlock()
	switch {
	case lasted, errors.Is(cause, ErrClosed) && now < l.until: // safeguard: unlock-after-close
		return nil
	case errors.Is(cause, ErrClosed), errors.Is(cause, ErrUnlocked):
		return cmp.Or(lost, l.expiry())
	}
	return cause
}

// unlockLost is the Unlock of a hold that was lost: very likely in the store as well. If not, it is
// released there, behind the caller: the store may be silent, which is the usual reason for a loss,
// and nothing that the caller can do depends on it.
func (h *hold) unlockLost(cause error) error {
	h.lease.remove(h.parent)()
	h.lease.core.pending.add(h.parent, &h.lease.claim, h.info) // safeguard: lost-hold-released
	return cause
}

// unlockReleased tells the store, or store if All has others beside it, with claim, in which the
// hook may have put what the release takes along. cause is nil or ErrMaxHold.
func (h *hold) unlockReleased(now instant, cause error, claim *backend.Claim,
	store backend.Backend,
) error {
	l, c := h.lease, h.lease.core
	lasted := time.Duration(now - l.granted)
	// Brief holds of stores without a queue count as well, see yieldTurn.
	if lasted >= briefHold || !l.claim.Queue || c.holdTimes.of(l.claim.Key) != nil {
		c.holdTimes.remember(l.claim.Key).add(l.passes+1, lasted, time.Now())
	}
	err := l.release(h.parent, claim, store)
	switch lost := l.cause; { // which nobody sets any more, as the lease is released by now
	// A renewal said so. safeguard: refuted-unlock
	case errors.Is(lost, backend.ErrLost) || errors.Is(lost, backend.ErrForeign):
		err = lost // whatever the release came to, which found no hold either
	case !errors.Is(err, backend.ErrLost):
		return cmp.Or(cause, err)
	// Not where something was to be left, which was not. safeguard: late-mark
	case l.expired(c.now()) && claim.Save == nil && claim.NotBefore == 0:
		// The lease ran out by itself while the release was in flight: the hold was good until the
		// call.
		return cause
	default:
		err = lostBecause(fmt.Errorf("the store says so: %w", err))
	}
	if h.onEnd != nil {
		_ = h.onEnd(err, nil)
	}
	return cmp.Or(cause, err)
}

// lostChan returns the channel that is closed on loss. It is made when somebody asks for it, closed
// if the loss has been; MaxHold and Unlock are no loss, and close none.
func (h *hold) lostChan() <-chan struct{} {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.lost == nil {
		h.lost = make(chan struct{})
		if errors.Is(h.cause, ErrLost) || errors.Is(h.cause, ErrClosed) && h.lease.cause != nil {
			h.lost = closedChan
		}
	}
	return h.lost
}

// heldBy reports whether ctx belongs to a hold, of any Client, of key in the store that b is a
// client of. It goes outwards from hold to hold, each of which has its caller's ctx; one that is
// over is in nobody's way. (A store that is reached by two Backends is two to it.)
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

// putMark has the Unlock of the hold leave the mark of a job that begins now.
//
// Safety: for how long it has run is counted here before the release is sent, and by the store from
// when it executes that. So the mark tells no earlier beginning than there was.
func (h *hold) putMark(every time.Duration) {
	// safeguard: ran-from-grant
	began := time.Now()
	// A hold that has ended already leaves none.
	_ = h.atEnd(func(cause error, claim *backend.Claim) error {
		if claim != nil && cause == nil && h.how != byForgo { // safeguard: cut-off-unnoted
			claim.NotBefore, claim.Ran = every, time.Since(began) // safeguard: once-mark
		}
		return nil
	})
}

// unlockUnseen unlocks a hold that its caller will never see.
func (c *core) unlockUnseen(h *hold) {
	c.add()
	behind(func() {
		defer c.done()
		_ = h.unlock(byUnlock, nil)
	})
}
