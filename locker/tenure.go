package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/chance"
	"github.com/holdfast-go/holdfast/waiting"
)

// A tenure is a lease in this process, from the store's grant until it is given back or lost: under one keeper, or under one
// after the other if it is handed on in the local line. It is renewed every third of its TTL, and has the deadline until which it
// is provably good. It is two timers and no goroutine while nothing happens, and handing it on touches neither.
//
// The deadline only moves by a confirmed renewal, to a time counted from before that renewal was sent. At the deadline the
// hold is lost, whatever is on the wire: the expiry timer waits for no I/O (rueidislock was 1.4 s late, waiting for a reply).
// A hold that ended never comes back, even if a late reply says yes: another may have been granted the key in between.
type tenure struct {
	c      *core
	claim  backend.Claim
	inLine bool // handed on in the local line
	crew   crewKey

	// For whoever has the lease, or is handing it on, alone.
	token  uint64                  // the present hold's
	spare  int                     // how many tokens above that belong to the grant too: one for each time it is handed on
	passes int                     // how often it was handed on
	since  time.Time               // when the store granted it
	handed time.Time               // when the present holder got it
	held   time.Duration           // by all holders that are done
	place  *waiting.Place[outcome] // on which the present holder got it; nil for the first

	mu      sync.Mutex // guards what follows, and the keepers
	keeper  *keeper    // the present one, or the last while it is handed on; nil before the first
	until   deadline
	over    bool               // given back, lost, or ended by MaxHold: renewed no more
	dead    error              // what ended it while it had no keeper
	turn    chan struct{}      // taken by whoever asks about this lease: one renewal at a time, none beside a release; see inTurn
	refuted bool               // the store said that the lease is gone: not to be handed on, even if Unlock was called first
	stop    context.CancelFunc // ends the renewal that is under way; nil if none is
	retry   *waiting.Backoff   // between renewals without an answer
	expiry  *time.Timer        // at the deadline
	renewal *time.Timer
	due     bool        // renewal is set
	watch   *time.Timer // when to begin to watch the lease; nil where the backend does not signal its loss
	unwatch func()      // ends that
}

// newTenure starts to look after a lease that the store has just granted.
func (c *core) newTenure(a *acquisition, l lease, spare int) *tenure {
	now := time.Now()
	t := &tenure{
		c: c, claim: a.claim, inLine: a.inLocalLine, crew: a.crew,
		token: l.token, spare: spare, since: now, handed: now, until: l.until, due: true,
	}
	c.mu.Lock()
	c.tenures[t] = struct{}{}
	c.mu.Unlock()
	t.mu.Lock() // before any of the timers can look
	defer t.mu.Unlock()
	rest := l.until.at.Sub(now)
	t.expiry = time.AfterFunc(rest, t.expire)
	// A lease that was handed over by the store is short until it is renewed for the first time.
	t.renewal = time.AfterFunc(min(t.interval(), rest/3), t.renew)
	if c.caps.Loss {
		t.watch = time.AfterFunc(lookAfter, t.look)
	}
	return t
}

// interval is a third of the TTL, a tenth more or less, so that locks taken together are not renewed together.
func (t *tenure) interval() time.Duration {
	third := t.claim.TTL / 3
	return third - third/10 + chance.N(third/5+1)
}

// attach makes k the present keeper. What happened to the lease on its way to k is k's to suffer.
func (t *tenure) attach(k *keeper) {
	t.mu.Lock()
	t.keeper = k
	dead := t.dead
	if !t.due && !t.over { // fired while nobody had the lease, or was stopped by the last holder's Unlock
		t.setRenewal(min(t.interval()/2, time.Until(t.until.at)/3))
	}
	t.mu.Unlock()
	if dead == nil && t.c.cut.Load() { // granted while Close ran out of time
		dead = lostBecause(ErrClosed)
	}
	if dead != nil {
		_ = k.finish(dead)
	}
}

// setRenewal sets the renewal timer. The caller has mu.
func (t *tenure) setRenewal(d time.Duration) {
	t.due = true
	t.renewal.Reset(d)
}

// end takes the lease out of the books: it is renewed no more.
func (t *tenure) end() {
	t.mu.Lock()
	t.halt()
	t.mu.Unlock()
	t.c.mu.Lock()
	delete(t.c.tenures, t)
	t.c.mu.Unlock()
}

// halt stops the timers. The caller has mu.
func (t *tenure) halt() {
	t.over = true
	t.renewal.Stop()
	t.expiry.Stop()
	if t.watch != nil {
		t.watch.Stop()
	}
	if t.unwatch != nil {
		t.unwatch()
	}
}

// expire ends the hold at its deadline, or sets the timer again if a renewal has moved it.
func (t *tenure) expire() {
	t.mu.Lock()
	k, rest := t.keeper, t.c.remaining(t.until)
	switch {
	case rest <= 0 && t.dead == nil:
		t.dead = errExpired
	case rest > 0 && (!t.over || k != nil && errors.Is(k.cause, ErrMaxHold)):
		t.expiry.Reset(rest)
	}
	t.mu.Unlock()
	if rest > 0 || k == nil {
		return
	}
	if cause := k.finish(errExpired); errors.Is(cause, ErrMaxHold) {
		k.gone(cause) // nobody unlocked it meanwhile
	}
}

var errExpired = lostBecause(ErrExpired)

// renew is the renewal timer's function.
func (t *tenure) renew() {
	t.mu.Lock()
	k := t.keeper
	t.due = false
	if k == nil || k.cause != nil || t.over {
		t.mu.Unlock()
		return // the next keeper sets the timer again, if there is one
	}
	if k.over == nil {
		k.over = make(chan struct{})
	}
	over, leaked, turn := k.over, k.leaked(), t.inTurn()
	t.mu.Unlock()
	if leaked {
		_ = k.finish(errLeaked)
		return
	}
	select {
	case turn <- struct{}{}: // waits behind Checks in line: none of them can starve it, and none has to set its timer
	case <-over:
		return
	}
	err := t.ask(context.WithoutCancel(k.parent), k, t.claim.TTL/6)
	<-turn // before the timer is set: it may be due at once
	if err != nil {
		t.again(k)
	}
}

// inTurn returns turn. Most leases are over before anybody asks about them. The caller has mu.
func (t *tenure) inTurn() chan struct{} {
	if t.turn == nil {
		t.turn = make(chan struct{}, 1)
	}
	return t.turn
}

// again sets the renewal timer to the next sleep of the backoff, unless the hold has ended.
func (t *tenure) again(k *keeper) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.cause != nil {
		return
	}
	if t.retry == nil {
		t.retry = waiting.NewBackoff(min(retryFirst, t.claim.TTL/12), min(retryMost, t.claim.TTL/12))
	}
	t.setRenewal(t.retry.Next())
}

// ask renews the lease once for k, within limit, and acts on the answer. The caller has the turn. The error is the store's, or
// the cause if the hold ended.
func (t *tenure) ask(ctx context.Context, k *keeper, limit time.Duration) error {
	t.mu.Lock()
	if k.cause != nil {
		defer t.mu.Unlock()
		return k.cause
	}
	t.c.life.follow() // the hold may end, and with it its own place in the count, while the store is asked
	defer t.c.life.leave()
	ctx, stop := context.WithTimeout(ctx, max(min(limit, t.c.remaining(t.until)), time.Millisecond))
	defer stop()
	t.stop = stop
	t.mu.Unlock()

	ctx, end := t.c.begin(ctx, OpRenew, k.hold)
	sent := t.c.now() // before the request: see deadline
	err := t.c.b.Renew(ctx, t.claim)
	end(k.hold, err)
	return t.answered(k, sent, err)
}

// answered takes a renewal's answer. Only a yes moves the deadline, only a definite no ends the hold; without an answer the
// hold is as good as before, and the store is asked again soon.
func (t *tenure) answered(k *keeper, sent instant, err error) error {
	refuted := errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrForeign)
	t.mu.Lock()
	t.stop = nil
	t.refuted = t.refuted || refuted
	if refuted {
		t.mu.Unlock()
		return k.finish(lostBecause(fmt.Errorf("the store says so: %w", err)))
	}
	defer t.mu.Unlock()
	if k.cause != nil {
		return k.cause
	}
	if t.c.remaining(t.until) <= 0 {
		// Too late, even for a yes: belief had ended. The expiry timer, which is due, ends the hold.
		t.expiry.Reset(0)
		return errExpired
	}
	if err != nil {
		return err // renew asks again soon; a Check leaves the timer as it is
	}
	t.retry = nil
	if d := deadlineOf(sent, t.claim.TTL); t.c.until(d).After(t.c.until(t.until)) {
		t.until = d
	}
	t.setRenewal(time.Until(sent.at.Add(t.interval())))
	return nil
}
