package locker

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/jitter"
	"github.com/holdfast-go/holdfast/waiting"
)

// watchAfter is how long a lease lasts before it is watched, or a sixth of its TTL if that is less:
// most holds are shorter, and a watch costs the store as much as the lock.
const watchAfter = time.Second

// leaseOf starts to look after what the store has just granted: it makes the lease of a wait's
// claim.
//
// Safety: until is the deadline of the grant, counted by the caller from before a request that the
// store executed later (attempt, handedOver), so belief ends before the store's lease does. The
// lease's claim keeps the owner of the request, so that what renews and releases it can be taken
// for nothing else. It says NoneInFlight only if every attempt was answered: else the release
// leaves a tombstone, which refuses an attempt that the store executes after it
// (TestDeadlineCountsFromBeforeTheRequest, TestReleaseAfterAnUnansweredAttemptLeavesATombstone).
func (w *wait) leaseOf(g backend.Grant, until, now instant) *lease {
	c, l := w.core, w.prealloc
	if w.prealloc = nil; l == nil {
		l = &lease{}
	}
	l.core, l.claim, l.info, l.finish, l.cohort = c, w.claim, w.info, w.finish, w.cohort
	l.token, l.spare, l.granted, l.until = g.Token, max(g.Reserved-1, 0), now, until
	l.tookOver = g.TookOver
	// All that follows names this claim: its release says whether a tombstone is needed.
	l.claim.NoneInFlight = !w.unsure
	l.claim.Before, l.queued = w.before, w.refToken != 0
	// What a claim asks for it asks once.
	l.claim.Load, l.claim.NotBefore, l.claim.Awaited, l.stored = false, 0, 0, g.State
	// A lease that was handed over by the store is short until it is renewed for the first time.
	l.renewAt = now + min(l.interval(), (until-now)/3)
	if c.caps.Loss {
		l.watchAt = now + instant(min(watchAfter, l.claim.TTL/6))
	}
	// With mu, before the timer can look: a grant with a short rest, or a machine that was paused
	// here, may have the timer fire at once, and tick resets the timer that is set here. And before
	// anybody finds the lease, as Close stops the timer of what it finds.
	l.mu.Lock() // safeguard: timer-before-found
	l.timer = time.AfterFunc(l.next(now), l.tick)
	l.mu.Unlock()
	// A loss that comes first takes it out in vain; newHold, which finds the loss, does so again.
	if l.cohort == nil {
		c.mu.Lock()
		c.alone[l] = struct{}{}
		c.mu.Unlock()
	}
	return l
}

// interval is a third of the TTL, a tenth more or less, so that locks taken together are not
// renewed together.
func (l *lease) interval() instant {
	third := l.claim.TTL / 3
	return instant(third - third/10 + jitter.N(third/5+1))
}

// next is how long it is until the timer has something to do: the deadline at the latest, so that
// no end of belief waits for an answer. The caller has mu.
func (l *lease) next(now instant) time.Duration {
	at := l.until
	if l.renewing == nil && !l.waiting {
		at = min(at, l.renewAt)
	}
	if l.watchAt != 0 {
		at = min(at, l.watchAt)
	}
	if l.hold != nil && l.hold.maxAt != 0 {
		at = min(at, l.hold.maxAt)
	}
	return time.Duration(max(at-now, 0))
}

// tick is the timer's function: it does what is due. It sets the timer again before it asks the
// store, so that no answer is waited for past the deadline.
//
// The order of the cases is that of what they mean: a deadline that has passed is a loss, whatever
// else is due; MaxHold comes before a renewal, which would give the hold time that it may not have;
// a guard that was dropped is noticed instead of being renewed. A tick that was late, or that comes
// for a lease that is over by now, finds so under the mutex and does nothing.
func (l *lease) tick() {
	now := l.core.now()
	l.mu.Lock()
	h := l.hold
	if l.state >= leaseReleased {
		l.mu.Unlock()
		return
	}
	switch {
	case now >= l.until:
		expired := l.expiry()
		l.mu.Unlock()
		_ = l.lose(expired)
		return
	case h != nil && h.maxAt != 0 && now >= h.maxAt:
		l.mu.Unlock()
		h.end(now, ErrMaxHold)
		l.endRenewal(h)
		return
	case l.state == leaseLast: // ended by MaxHold: until the deadline only its Unlock is awaited
		l.timer.Reset(time.Duration(l.until - now))
		l.mu.Unlock()
		return
	}
	if l.watchAt != 0 && now >= l.watchAt {
		l.beginWatch(now)
	}
	due := l.renewing == nil && !l.waiting && now >= l.renewAt
	if due && h != nil && h.leaked() {
		l.mu.Unlock()
		_ = l.lose(errLeaked)
		return
	}
	l.waiting = l.waiting || due
	l.timer.Reset(l.next(now)) // before the turn of the renewal; safeguard: timer-before-renewal
	l.mu.Unlock()
	if due {
		l.core.renewals.run(l)
	}
}

// endRenewal has a lease whose hold MaxHold has ended renewed no more. If that hold's Unlock was
// quicker, the lease may be another hold's by now, which is renewed: so the timer is set either
// way.
func (l *lease) endRenewal(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.maxAt = 0
	if l.hold == h && h.state == holdEnded && l.state == leaseGood {
		l.state = leaseLast
	}
	if l.state < leaseReleased { // safeguard: timer-after-max-hold
		l.timer.Reset(l.next(l.core.now()))
	}
}

// renewDue renews the lease now that its turn has come, unless it is over or was renewed meanwhile:
// a Check renews it as well, and between the tick and the turn others may have been in front. It
// may then be another hold's than at the tick, in whose name it is renewed.
func (l *lease) renewDue() {
	now := l.core.now()
	l.mu.Lock()
	l.waiting = false
	if l.state != leaseGood || l.renewing != nil || now < l.renewAt || now >= l.until {
		// If the deadline has passed, the timer, which is never set past it, is about to tell.
		if l.state == leaseGood && now < l.until {
			l.timer.Reset(l.next(now)) // safeguard: turn-after-check
		}
		l.mu.Unlock()
		return
	}
	h := l.hold
	ctx := l.begin(context.Background(), h, l.claim.TTL/6)
	l.timer.Reset(l.next(now))
	l.mu.Unlock()
	_ = l.renew(ctx, h)
}

// begin makes a renewal or a Check the one under way; renew ends it. There is one at a time, so
// that answers come in the order of the requests, and an Unlock has one to wait for. It is given no
// longer than the deadline: after that no answer counts. The caller has mu.
func (l *lease) begin(ctx context.Context, h *hold, limit time.Duration) context.Context {
	if h != nil && ctx == context.Background() {
		ctx = context.WithoutCancel(h.parent)
	}
	limit = max(min(limit, time.Duration(l.until-l.core.now())), time.Millisecond)
	ctx, l.stop = context.WithTimeout(ctx, limit)
	l.renewing = make(chan struct{})
	l.core.add()
	return ctx
}

// renew asks the store once to extend the lease, and acts on the answer. Only a yes moves the
// deadline, and only a definite no ends the hold; without an answer the lease is as good as before,
// and the store is asked again soon. The error is the store's, or why the hold ended.
//
// Safety: what is written is a longer end of this owner's lease, if it has one; a store that has
// granted the key to another meanwhile refuses. So a renewal that lands late, after the release or
// after the lease has run out, lengthens nothing. The deadline moves to a time counted from before
// the request, and only if that has not passed when the answer is here: belief that has ended does
// not begin again, even if the store says yes, as another may have been granted the key and have
// lost it in between. The loss is noted in the step that ends the renewal, so that an Unlock that
// waits for it neither hands the lease on nor takes the hold for good
// (TestRenewalMovesDeadlineFromItsOwnSending, TestLateYesDoesNotRevive,
// TestLeaseRefutedDuringUnlockIsNotHandedOn, the seeds of internal/simulation).
func (l *lease) renew(ctx context.Context, h *hold) error {
	c, info := l.core, l.info
	defer c.done()
	if h != nil {
		info = h.info
	}
	ctx, end := c.observe(ctx, OpRenew, info)
	sent := c.now() // before the request: see deadlineOf; safeguard: renewal-deadline
	err := c.b.Renew(ctx, l.claim)
	trouble := troubleOf(ctx, err)
	end(info, err)
	// Two answers are definite: the store has no such lease, or the key has become something
	// else's.
	// safeguard: refuted
	refuted := errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrForeign)

	l.mu.Lock()
	l.stop()
	close(l.renewing)
	l.renewing, l.stop = nil, nil
	now := c.now()
	log := func() {}
	defer func() { log() }() // without mu
	switch {
	case refuted, now >= l.until: // too late, even for a yes: belief had ended; safeguard: late-yes
		l.trouble = cmp.Or(trouble, l.trouble)
		cause := l.expiry()
		if refuted {
			cause = lostBecause(fmt.Errorf("the store says so: %w", err))
		}
		h, cause, first := l.setLost(cause)
		l.mu.Unlock()
		if first {
			l.endLost(h, cause)
		}
		return cause
	case err == nil: // safeguard: renewal-answer
		c.noteReply()
		l.retry = nil
		log = l.noteTrouble(info, nil, now)
		l.until = max(l.until, deadlineOf(sent, l.claim.TTL))
		l.renewAt = sent + l.interval()
	default: // no answer
		if trouble != nil {
			log = l.noteTrouble(info, trouble, now)
		}
		if now >= l.renewAt { // the renewal was due, and is again after a moment
			if l.retry == nil {
				l.retry = waiting.NewBackoff(min(retryFirst, l.claim.TTL/12),
					min(retryMost, l.claim.TTL/12))
			}
			l.renewAt = now + instant(l.retry.Next())
		}
	}
	defer l.mu.Unlock()
	if l.state != leaseGood {
		return l.cause
	}
	l.timer.Reset(l.next(now))
	return err
}

// troubleOf is what err, of a renewal under ctx, says of the store. It is nil after a yes, and if
// the renewal was withdrawn. That its time was over is in the text alone: a ctx of ours is not the
// caller's.
func troubleOf(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(ctx.Err(), context.Canceled): // safeguard: renewal-withdrawn
		return nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return errors.New(wrapUnknown(err).Error())
	}
	return wrapUnknown(err)
}

// noteTrouble keeps why the store has not confirmed the lease, nil if it has, and returns what logs
// it: the first time, and when it is over. The caller has mu, and log is called without.
func (l *lease) noteTrouble(info Hold, why error, now instant) (log func()) {
	before, left, logger := l.trouble, time.Duration(l.until-now), l.core.cfg.Logger
	l.trouble = why // safeguard: last-trouble
	switch {
	case before == nil && why != nil:
		return func() {
			logger.Warn("holdfast: the store does not confirm a lock", "key", info.Key,
				"token", info.Token, "lease_seconds", left.Seconds(), "error", why)
		}
	case before != nil && why == nil: // safeguard: trouble-over
		return func() {
			logger.Info("holdfast: the store confirms the lock again", "key", info.Key,
				"token", info.Token)
		}
	}
	return func() {}
}

// check is renew for a caller, after any renewal that is under way. A caller that leaves does not
// end the renewal: many who are given too little time must not keep the lease from being renewed.
func (l *lease) check(ctx context.Context, h *hold) error {
	for {
		if err := h.valid(); err != nil {
			return err
		}
		l.mu.Lock()
		under := l.renewing
		// Once the hold has a cause, or the lease another state, valid says so the next time round.
		if under == nil && h.cause == nil && l.state == leaseGood {
			asked := l.begin(context.WithoutCancel(ctx), h, l.claim.TTL/6)
			l.mu.Unlock()
			// One slot: a caller that has left does not keep the renewal from ending.
			answer := make(chan error, 1)
			go func() { answer <- l.renew(asked, h) }()
			select {
			case err := <-answer:
				if cause := h.valid(); cause != nil { // safeguard: check-overtaken
					return cause
				}
				return err
			case <-ctx.Done():
				return ctx.Err() // not its cause, which may be another hold's loss
			}
		}
		l.mu.Unlock()
		if under != nil {
			select {
			case <-under:
			case <-ctx.Done(): // safeguard: check-left
				return ctx.Err()
			}
		}
	}
}

// maxWatched is how many leases of a client are watched for their loss at once: each costs a
// goroutine.
const maxWatched = 1 << 10

// beginWatch has the lease watched, or looks again later if too many are. The caller has mu.
func (l *lease) beginWatch(now instant) {
	c := l.core
	if c.watched.Add(1) > maxWatched { // safeguard: watched-bound
		c.watched.Add(-1)
		l.watchAt = now + l.interval()
		return
	}
	l.watchAt = 0
	var ctx context.Context
	ctx, l.unwatch = context.WithCancel(context.Background())
	c.add()
	go l.watch(ctx)
}

// watch signals the loss of the lease until its end. A signal is a hint, and never ends a hold: the
// store is asked, as by Check, and its answer does. A request without an answer is repeated.
//
// The store is asked first each time that the watch begins, as nobody is told of what came before
// it: in between another may have been granted the key (TestSignalOfALossWhileTheLeaseIsHandedOn).
func (l *lease) watch(ctx context.Context) {
	defer l.core.done()
	defer l.core.watched.Add(-1)
	claim := l.claim
	claim.Queue = false // a holder waits in no queue, and a store must not put it into one
	retry := waiting.NewBackoff(retryFirst, max(retryMost, claim.TTL/12))
	for {
		wakes, err := l.core.b.Watch(ctx, claim)
		if backend.Refused(err) {
			l.verified(ctx) // the key may be no lock any more; safeguard: watch-refused
		}
		for open := err == nil; open; {
			for !l.verified(ctx) {
				if !waiting.Pause(ctx, retry.Next()) {
					return
				}
			}
			retry.Reset()
			select {
			case _, open = <-wakes:
			case <-ctx.Done():
				return
			}
		}
		final := errors.Is(err, errors.ErrUnsupported) || errors.Is(err, backend.ErrClosed)
		if final || !waiting.Pause(ctx, retry.Next()) { // safeguard: watch-again
			return // the renewal decides
		}
	}
}

// verified asks the store for the present hold, and reports whether it answered that all is well.
// While the lease is handed on there is nobody to ask for.
func (l *lease) verified(ctx context.Context) bool {
	h := l.holder()
	return h != nil && l.check(ctx, h) == nil
}

const (
	// maxRenewals is how many renewals of one client are in flight that count. More would only wait
	// inside the client library or the server, in the order in which they came.
	maxRenewals = 256

	// stalledAfter is how long renewals in flight count while none of them ends and others are due.
	stalledAfter = time.Second / 2
)

// renewals has the leases of a client renewed in the order of their deadlines when more are due
// than may be in flight: if the store cannot keep up with all of them, it is used for those that it
// can save, and no request is spent on a lease that is over.
//
// A store that is slow, or was away for a moment, has many leases become due at once. Then order is
// what saves most of them (TestRenewalsBeyondWhatTheStoreCanTake,
// TestRenewalsInTheOrderOfTheirDeadlines).
//
// A part of the store may be silent, as a primary of a cluster, and no backend says which keys are
// of it. Renewals that wait for that part must not keep those of the rest waiting. So one counts
// until it ends, or until one that was sent later has: a single server answers in the order of the
// requests, so what was overtaken waits for something else. If none ends, all in flight may be of
// the silent part, and after a moment they count no more. They are at most one for each lease;
// while nothing answers, maxRenewals for each such moment (TestSilentPartOfTheStore).
type renewals struct {
	mu      sync.Mutex
	sent    int64       // how many were sent ever: each has the number that it made of this,
	settled int64       // and up to this one they count no more
	stalled *time.Timer // since the last was sent; nil before the first
	due     minHeap[dueLease]
}

// run has l renewed when its turn comes, in a goroutine of its own. The deadline by which the list
// is ordered is as of now; if a Check moves it meanwhile, renewDue finds nothing due.
func (r *renewals) run(l *lease) {
	l.mu.Lock()
	d := dueLease{l, l.until, l.retry != nil}
	l.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	heap.Push(&r.due, d)
	r.send()
}

// send sends those whose turn it is. The caller has mu.
func (r *renewals) send() {
	for len(r.due) > 0 && r.sent-r.settled < maxRenewals {
		r.sent++
		l, n := r.due.pop().lease, r.sent
		go func() {
			l.renewDue()
			r.settle(n)
		}()
		if r.stalled == nil {
			// safeguard: renewals-stalled
			r.stalled = time.AfterFunc(stalledAfter, func() { r.settle(math.MaxInt64) })
		}
		r.stalled.Reset(stalledAfter)
	}
}

// settle counts the renewals up to the n-th no more, and sends others in their place.
func (r *renewals) settle(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled = max(r.settled, min(n, r.sent)) // safeguard: renewals-overtaken
	r.send()
}

// A dueLease is a lease that is to be renewed, until when it is good, and whether its last renewal
// had no answer: then others go first, as it may be of a part of the store that is silent.
type dueLease struct {
	lease      *lease
	until      instant
	unanswered bool
}

func (d dueLease) before(other dueLease) bool {
	if d.unanswered != other.unanswered { // safeguard: unanswered-last
		return other.unanswered
	}
	return d.until < other.until // safeguard: renewal-order
}

func (dueLease) moved(int) {}
