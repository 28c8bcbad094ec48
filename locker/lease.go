package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/jitter"
	"github.com/holdfast-go/holdfast/waiting"
)

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
	core   *core
	claim  backend.Claim
	info   Hold              // key and mode, for the observer
	finish func(Hold, error) // ends its operation, for a lease that the acquirer got; else nil

	// In a cohort, guarded by core.mu; without one, only its hold uses them.
	cohort  *cohort // nil without one
	token   uint64  // the present hold's
	spare   int     // how many tokens above that belong to the grant: one for each time it is handed on
	passes  int     // how often it was handed on
	granted instant
	queued  bool    // it was waited for in the store's queue, so that those behind may not know of it
	waiter  *waiter // that got the lease for the present hold; nil for the first

	state     []byte        // what was stored when the lease was granted, for a Store
	save      []byte        // what its release saves; nil if nothing
	notBefore time.Duration // of the mark that its release leaves

	mu       sync.Mutex // guards what follows, and the hold
	hold     *hold      // the present one; nil before the first, and while the lease is handed on
	until    instant    // the deadline
	over     bool       // released, lost, or left to run out: renewed no more
	lost     error      // why, if it was lost
	renewAt  instant
	watchAt  instant // when to begin to watch for its loss; zero: not, or begun
	unwatch  context.CancelFunc
	timer    *time.Timer        // for whichever of the three is next
	waiting  bool               // a renewal is due and waits for its turn, see renewals
	renewing chan struct{}      // closed when the renewal or Check under way has ended; nil if none is
	stop     context.CancelFunc // ends that
	retry    *waiting.Backoff   // between renewals without an answer; nil after an answer

	firstHold hold // most leases have no other, so it is made with them
}

// watchAfter is how long a lease lasts before it is watched, or a sixth of its TTL if that is less:
// most holds are shorter, and a watch costs the store as much as the lock.
const watchAfter = time.Second

// leaseOf starts to look after what the store has just granted.
func (w *wait) leaseOf(g backend.Grant, until, now instant) *lease {
	c, l := w.core, w.room
	if w.room = nil; l == nil {
		l = &lease{}
	}
	l.core, l.claim, l.info, l.finish = c, w.claim, w.info, w.finish
	l.token, l.spare, l.granted, l.until = g.Token, max(g.Reserved-1, 0), now, until
	l.claim.NoneInFlight = !w.unsure
	l.claim.Before, l.queued = w.before, w.refToken != 0
	l.claim.Load, l.claim.NotBefore, l.state = false, 0, g.State
	// A lease that was handed over by the store is short until it is renewed for the first time.
	l.renewAt = now + min(l.interval(), (until-now)/3)
	if c.caps.Loss {
		l.watchAt = now + instant(min(watchAfter, l.claim.TTL/6))
	}
	c.mu.Lock()
	c.leases[l] = struct{}{}
	c.mu.Unlock()
	l.mu.Lock() // before the timer can look
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.next(now), l.tick)
	return l
}

// interval is a third of the TTL, a tenth more or less, so that locks taken together are not
// renewed together.
func (l *lease) interval() instant {
	third := l.claim.TTL / 3
	return instant(third - third/10 + jitter.N(third/5+1))
}

// next is how long it is until the timer has something to do. The caller has mu.
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
func (l *lease) tick() {
	now := l.core.now()
	l.mu.Lock()
	h := l.hold
	if l.lost != nil || l.over && (h == nil || h.unlocking) {
		l.mu.Unlock()
		return
	}
	switch {
	case now >= l.until:
		l.mu.Unlock()
		_ = l.lose(errExpired)
		return
	case h != nil && h.maxAt != 0 && now >= h.maxAt:
		l.mu.Unlock()
		h.end(now, ErrMaxHold)
		return
	case l.over: // ended by MaxHold: until the deadline only its Unlock is awaited
		l.timer.Reset(time.Duration(l.until - now))
		l.mu.Unlock()
		return
	}
	if l.watchAt != 0 && now >= l.watchAt {
		l.watchAt = 0
		var ctx context.Context
		ctx, l.unwatch = context.WithCancel(context.Background())
		l.core.add()
		go l.watch(ctx)
	}
	due := l.renewing == nil && !l.waiting && now >= l.renewAt
	if due && h != nil && h.leaked() {
		l.mu.Unlock()
		_ = l.lose(errLeaked)
		return
	}
	l.waiting = l.waiting || due
	l.timer.Reset(l.next(now))
	l.mu.Unlock()
	if due {
		l.core.renewals.run(l)
	}
}

// renewDue renews the lease now that its turn has come, unless it is over or was renewed meanwhile.
func (l *lease) renewDue() {
	now := l.core.now()
	l.mu.Lock()
	l.waiting = false
	if l.over || l.renewing != nil || now < l.renewAt || now >= l.until {
		if !l.over {
			l.timer.Reset(l.next(now))
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

// deadline returns until when the lease is provably good.
func (l *lease) deadline() instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// begin makes a renewal or a Check the one under way; renew ends it. The caller has mu.
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
func (l *lease) renew(ctx context.Context, h *hold) error {
	c, info := l.core, l.info
	defer c.done()
	if h != nil {
		info = h.info
	}
	ctx, end := c.observe(ctx, OpRenew, info)
	sent := c.now() // before the request: see deadlineOf
	err := c.b.Renew(ctx, l.claim)
	end(info, err)
	refuted := errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrForeign)

	l.mu.Lock()
	l.stop()
	close(l.renewing)
	l.renewing, l.stop = nil, nil
	now := c.now()
	switch {
	case refuted, now >= l.until: // too late, even for a yes: belief had ended
		cause := errExpired
		if refuted {
			cause = lostBecause(fmt.Errorf("the store says so: %w", err))
		}
		// In the step that ends the renewal: an Unlock that waits for it must not hand the lease
		// on.
		h, cause, first := l.setLost(cause)
		l.mu.Unlock()
		if first {
			l.endLost(h, cause)
		}
		return cause
	case err == nil:
		c.heard()
		l.retry = nil
		l.until = max(l.until, deadlineOf(sent, l.claim.TTL))
		l.renewAt = sent + l.interval()
	case now >= l.renewAt: // a renewal was due, and is
		if l.retry == nil {
			l.retry = waiting.NewBackoff(min(retryFirst, l.claim.TTL/12), min(retryMost, l.claim.TTL/12))
		}
		l.renewAt = now + instant(l.retry.Next())
	}
	defer l.mu.Unlock()
	if l.over {
		return l.lost
	}
	l.timer.Reset(l.next(now))
	return err
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
		if under == nil && h.cause == nil && !l.over {
			asked := l.begin(context.WithoutCancel(ctx), h, l.claim.TTL/6)
			l.mu.Unlock()
			answer := make(chan error, 1)
			go func() { answer <- l.renew(asked, h) }()
			select {
			case err := <-answer:
				if cause := h.valid(); cause != nil {
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
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// watch signals the loss of the lease until its end. A signal is a hint, and never ends a hold: the
// store is asked, as by Check, and its answer does. A request without an answer is repeated.
func (l *lease) watch(ctx context.Context) {
	defer l.core.done()
	claim := l.claim
	claim.Queue = false // it waits in no queue
	retry := waiting.NewBackoff(retryFirst, max(retryMost, claim.TTL/12))
	for {
		wakes, err := l.core.b.Watch(ctx, claim)
		if backend.Refused(err) {
			l.verified(ctx) // the key may be no lock any more
		}
		for open := err == nil; open; {
			for !l.verified(ctx) { // first, as nobody is told of what came before: another may hold by now
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
		if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, backend.ErrClosed) || !waiting.Pause(ctx, retry.Next()) {
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

// holder returns the present hold, or nil.
func (l *lease) holder() *hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil || l.hold.unlocking {
		return nil
	}
	return l.hold
}

// good reports whether the lease is good for a while yet, as far as is known.
func (l *lease) good(now instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost == nil && !l.over && time.Duration(l.until-now) >= min(l.claim.TTL/2, l.core.cfg.Wait.Fallback)
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
	if l.lost != nil || l.over && (l.hold == nil || l.hold.unlocking) {
		return nil, l.lost, false
	}
	l.lost = cause
	l.halt()
	return l.hold, cause, true
}

// endLost ends the hold of a lease that was lost just now, and has its cohort get another lease.
func (l *lease) endLost(h *hold, cause error) {
	ctx := context.Background()
	if h != nil {
		ctx = h.parent
		h.end(l.core.now(), cause)
	}
	l.core.drop(ctx, l)()
}

// halt ends the renewals, the watch and the timer. The caller has mu.
func (l *lease) halt() {
	l.over = true
	l.timer.Stop()
	if l.unwatch != nil {
		l.unwatch()
	}
	if l.stop != nil {
		l.stop()
	}
}

var (
	errExpired = lostBecause(ErrExpired)
	errLeaked  = lostBecause(ErrLeaked)
)
