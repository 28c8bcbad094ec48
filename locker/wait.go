package locker

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// A wait is one claim on its way from the first attempt to a lease, or to its withdrawal. It is
// used by one goroutine at a time: lockAlone's caller, or lockFirst's and then the acquirer.
// Heartbeats read its claim, which nobody changes while they may.
type wait struct {
	core  *core
	claim backend.Claim
	info  Hold // for the observer

	cohort   sharer            // for whom it asks; nil: for one caller
	prealloc *lease            // optional; it saves an allocation
	finish   func(Hold, error) // with cohort: ends the operation of the lease
	failBy   time.Time         // of that caller, see call

	asked      bool // an attempt was made
	unsure     bool // one was not answered: it may have been granted, or may yet be
	unanswered bool // the last attempt got no definite answer
	noWakes    bool // no subscription is to be had, or wanted
	// when the first attempt was sent of those in a row that are not answered
	since time.Time
	last  error // the last definite answer, or why there was none since
	// who held before the key was handed over to it; until then, who holds before it
	before  []backend.Past
	blocked instant // before the first attempt was sent that named the latter
	// before the last attempt or heartbeat was sent that left the claim in the queue
	queued   instant
	refToken uint64 // the key's last token by the answer to it; 0 unknown

	wakes       <-chan backend.Wake // nil without a subscription
	unsubscribe context.CancelFunc
	retry       *waiting.Backoff // between attempts that are not answered; nil until there is one
	poll        *waiting.Backoff // between attempts without a subscription; nil until there is one
}

// once is TryLock: one attempt, and another one with the same claim if the first was not answered.
func (w *wait) once(ctx context.Context) (*lease, error) {
	l, err := w.attempt(ctx, w.core.b)
	if err != nil && backend.AnswerOf(err) == backend.Unknown && ctx.Err() == nil &&
		!errors.Is(err, ErrClosed) {
		l, err = w.attempt(ctx, w.core.b)
	}
	if err != nil {
		w.withdraw(ctx)
	}
	return l, err
}

// attempt asks the store once. Three answers: nil is a lease with at least half of its TTL left; a
// definite no is the backend's; anything else leaves the claim unsure, so that it is repeated or
// withdrawn and never forgotten.
//
// Safety: what the store writes is a lease for the claim's owner, if nobody else has one, and
// nothing if somebody has. The owner's name is 128 random bits that no other claim has, so an
// attempt that is repeated, or that lands late, extends this claim's lease or begins it, and can be
// taken for no other's. The lease that we believe in begins before the store's: sent is read before
// the request. A grant that comes when nobody wants it any more, after the caller's ctx ended or
// Close began, is not believed in; it is an error here, and unsure, so that withdraw releases it.
// One that was so slow that half of it is over is not believed in either, as the request after it
// would be late: the same claim is asked for again, which extends it
// (TestDeadlineCountsFromBeforeTheRequest, TestGrantThatRacedWithCancelIsPutBack,
// TestGrantThatComesTooLateIsAskedForAgain, TestSimulation).
func (w *wait) attempt(ctx context.Context, store backend.Backend) (*lease, error) {
	c := w.core
	ctx, end := c.observe(ctx, OpAttempt, w.info)
	began := time.Now()
	sent := c.instant(began) // before the request: the lease cannot have begun earlier
	w.asked = true           // from here on there may be something in the store
	if !w.unanswered {
		w.since = began // of those in a row that are not answered the first counts
	}
	var l *lease
	send, answered := ctx, func() {}
	if w.cohort == nil && w.claim.Queue { // of a cohort no more than one attempt is in flight
		send, answered = w.patient(ctx)
	}
	g, err := store.TryAcquire(send, w.claim)
	answered()
	if err == nil {
		// safeguard: grant-deadline
		until, now := deadlineOf(sent, max(g.TTL, w.claim.TTL)), c.now()
		switch {
		// Granted after the caller gave up: it is released. safeguard: cancelled-grant
		case ctx.Err() != nil:
			err = ctx.Err()
		case c.closing.Err() != nil: // or after Close began
			err = ErrClosed
		case time.Duration(until-now) < w.claim.TTL/2: // safeguard: late-grant
			err = errSlow
		default:
			c.noteReply()
			l = w.leaseOf(g, until, now)
		}
	}
	switch {
	case err == nil, errors.Is(err, errNotAsked):
	case errors.Is(err, backend.ErrHeld), errors.Is(err, backend.ErrQuarantined):
		w.since = began
		err = w.refused(sent, err)
	// The grants that are not believed in are here as well.
	case backend.AnswerOf(err) == backend.Unknown:
		w.unsure, w.unanswered = true, true // safeguard: late-grant-unsure
		err = wrapUnknown(err)
		if ctx.Err() == nil && !errors.Is(err, ErrClosed) && !errors.Is(err, context.Canceled) &&
			!errors.Is(err, context.DeadlineExceeded) {
			w.trouble(err) // no echo of a ctx
		}
	default:
		w.unanswered = true
		w.trouble(err)
	}
	info := w.info
	info.Token, info.TookOver = g.Token, g.TookOver
	end(info, err)
	return l, err
}

// patient returns the context of an attempt that may leave a place in the queue, and a function to
// call when it is answered. A caller that gives up waits for the answer while the store answers
// anybody, for a second at most: of those in flight a store bars a few only, and thousands may give
// up at once.
func (w *wait) patient(ctx context.Context) (context.Context, func()) {
	if ctx.Done() == nil || ctx.Err() != nil {
		return ctx, func() {}
	}
	c := w.core
	// When the caller's ctx ends, the request is cut off only after a grace without an answer: to
	// this claim, or, while the store answers others of this client, to any; but then after ten of
	// them, as it may be this one alone that is never answered.
	send, cancel := context.WithCancel(context.WithoutCancel(ctx))
	answered := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer cancel()
		left, rest := time.Now(), withdrawGrace
		for rest > 0 && c.cut.Err() == nil {
			select {
			case <-answered:
				return
			case <-time.After(rest):
			}
			rest = withdrawGrace - c.silence()
			rest = min(rest, 10*withdrawGrace-time.Since(left)) // safeguard: patience-bound
		}
	})
	return send, func() {
		stop()
		close(answered)
		cancel()
	}
}

// refused takes note of a definite answer: another holds the key, or nothing is granted yet. It
// returns the answer with what this client makes of it. The token in it, and the time before the
// request, are what a later hand-over is judged by, see handedOver.
func (w *wait) refused(sent instant, err error) error {
	w.core.noteReply()
	w.retry, w.unanswered = nil, false
	var held *backend.HeldError
	if errors.As(err, &held) {
		if w.claim.Queue {
			w.queued, w.refToken = sent, held.Token // safeguard: refused-from-sent
		}
		if w.claim.NotBefore > 0 && w.claim.Awaited == 0 { // safeguard: once-awaited-first
			w.claim.Awaited = held.Token // safeguard: once-awaited
		}
		w.core.contended(&w.claim)
		err = w.core.estimate(&w.claim, held)
		w.noteHolder(sent, held)
	}
	w.last = err
	if w.cohort != nil {
		w.cohort.noteRefusal(err)
	} else if vain := wouldTimeout(w.failBy, err); vain != nil {
		err, w.last = vain, vain // safeguard: vain-told
	}
	return err
}

// noteHolder keeps who holds, for the observer, if what is next is this claim's turn or anybody's.
func (w *wait) noteHolder(sent instant, held *backend.HeldError) {
	switch {
	case w.core.events == nil:
	case held.Position > 1 || held.Holder == backend.Meta{}:
		w.before = nil
	case len(w.before) != 1 || w.before[0].Meta != held.Holder:
		w.before, w.blocked = []backend.Past{{Meta: held.Holder}}, sent
	}
}

// trouble keeps why there was no answer, for the error message: of those who wait in a cohort each
// fails by itself when its time is over, and says so.
func (w *wait) trouble(err error) {
	w.last = err
	if w.cohort != nil {
		w.cohort.noteTrouble(err)
	}
}

// run is the only wait loop.
//
// No wake-up is missed: the subscription is active before subscribe returns, and only then the
// store is asked again, so a release either comes before that attempt, which finds the key free, or
// after it, and then signals. No wake-up is trusted: each is followed by an attempt, whose answer
// alone counts, or carries a grant that handedOver can prove. None is relied on: the sleep ends by
// itself, and with a place in the queue the claim, or a heartbeat for it, is repeated within the
// place's WaiterTTL.
func (w *wait) run(ctx context.Context) (l *lease, err error) {
	end := ignore
	var nested *nestedWait
	defer func() {
		w.stop()
		err = nested.exit(err)
		end(w.info, err)
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// Who comes here may have been refused already, by lockFirst. That counts as the first attempt
	// of the loop if it came after a subscription: a release since then has signalled.
	refused := w.subscribed(ctx)
	if refused {
		err = w.last
	}
	for waits := w.cohort != nil; ; waits, refused = true, false {
		if !refused {
			l, err = w.attemptUntilClosed(ctx)
		}
		if err == nil || w.shouldStop(ctx, err) {
			break
		}
		if !waits { // the observer hears of one wait, however often the store is asked
			ctx, end = w.core.observe(ctx, OpWait, w.info)
			ctx, nested = w.core.enterNested(ctx, w.claim.Key, w.claim.Owner, w.info)
		}
		if errors.Is(err, backend.ErrHeld) && w.wakes == nil && w.subscribe(ctx) {
			continue // the key may have been freed before the subscription: ask again
		}
		if handed := w.sleep(ctx, err); handed != nil {
			return handed, nil
		}
		if ctx.Err() != nil || w.core.closing.Err() != nil {
			break
		}
	}
	if err != nil && w.last != nil {
		err = w.last // says more than what ended the wait, which obtain adds
	}
	return l, err
}

// subscribed subscribes before the first attempt of run, if that is likely to save another one. It
// reports whether the last attempt came after the subscription, so that its refusal counts.
func (w *wait) subscribed(ctx context.Context) bool {
	if w.wakes == nil && (w.cohort != nil ||
		w.claim.Queue && w.core.likelyHeld(w.core.holdTimes.of(w.claim.Key))) {
		w.subscribe(ctx)
		return false
	}
	return w.wakes != nil && !w.unanswered
}

// attemptUntilClosed is attempt, which Close ends. Nothing of it stays while the claim sleeps:
// contexts are most of what a waiter costs. (A cohort's ctx is ended by Close.)
func (w *wait) attemptUntilClosed(ctx context.Context) (*lease, error) {
	if w.cohort != nil {
		w.cohort.noteAttempt()
		return w.attempt(ctx, w.core.b)
	}
	// Its answer may be a grant all the same: then attempt finds Close begun, and takes it for
	// unsure.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// safeguard: close-ends-attempt
	defer context.AfterFunc(w.core.closing, func() { cancel(ErrClosed) })()
	return w.attempt(ctx, w.core.b)
}

// shouldStop reports whether to stop retrying: nobody waits any more, the store refuses, or has
// been silent for too long, or the wait would be too long. (Silence in a cohort is each waiter's,
// see failUnanswered.)
func (w *wait) shouldStop(ctx context.Context, err error) bool {
	return ctx.Err() != nil || w.core.closing.Err() != nil ||
		backend.Refused(err) || errors.Is(err, backend.ErrLost) ||
		errors.Is(err, ErrWouldTimeout) ||
		w.cohort == nil && backend.AnswerOf(err) != backend.Yes &&
			!errors.Is(err, backend.ErrHeld) &&
			!errors.Is(err, backend.ErrQuarantined) &&
			w.core.timedOut(w.since, timeout(w.core.cfg.StoreTimeout, w.claim.TTL))
}

// subscribe asks for wake-ups and reports whether it has them. Where they are not to be had,
// waiting goes on by polling. A subscription that takes longer than the fallback interval is given
// up: the key may be free by now.
//
// Its context is not the caller's, as the subscription goes on when the acquirer takes the wait
// over; the caller's end, Close and the time limit end it only until Watch has returned. Whether
// one of them did is asked of the three functions that stop them, so that no cancellation falls in
// between and leaves a subscription that is closed and taken for open
// (TestUnconfirmedWatchDoesNotHideAFreeLock).
func (w *wait) subscribe(ctx context.Context) bool {
	if w.noWakes || !w.core.caps.Watch {
		return false
	}
	// Lasts until stop, also when the acquirer goes on. safeguard: subscription-outlives
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
	slow := time.AfterFunc(w.core.cfg.Wait.Fallback, cancel)
	left, closing := context.AfterFunc(ctx, cancel), context.AfterFunc(w.core.closing, cancel)
	wakes, err := w.core.b.Watch(watch, w.claim)
	stays, goesOn, inTime := left(), closing(), slow.Stop()
	if !stays || !goesOn || !inTime || err != nil {
		cancel()
		w.noWakes = errors.Is(err, errors.ErrUnsupported)
		return false
	}
	w.wakes, w.unsubscribe = wakes, cancel
	return true
}

// stop ends the subscription, if there is one.
func (w *wait) stop() {
	if w.unsubscribe != nil {
		w.unsubscribe()
		w.wakes, w.unsubscribe = nil, nil
	}
}

// sleep is where a wait spends its time. It waits until it is worth asking again: a wake-up, the
// end of the lease that blocks, the fallback interval, or the loss of the place. Or until the key
// is handed over, which needs no attempt: then it returns the lease. With a place in the queue its
// heartbeats take the place of asking.
func (w *wait) sleep(ctx context.Context, err error) *lease {
	var due <-chan time.Time
	var ask <-chan struct{}
	p := w.startHeartbeats(err) // or the timer below: one of the two repeats the claim
	if p != nil {
		ask = p.ask
	} else {
		due = time.After(w.pause(err))
	}
	select {
	case wake, open := <-w.wakes:
		w.stopHeartbeats(p)
		return w.woken(ctx, &wake, open)
	case <-due:
		w.core.observeWake(ctx, WakeDue)
	case <-ask:
		w.core.observeWake(ctx, WakeDue)
	case <-ctx.Done():
	case <-w.core.closing.Done():
	}
	w.stopHeartbeats(p)
	return nil
}

// woken takes a wake-up, and returns the lease if the key was handed over. A channel that is closed
// brings no more: the subscription is lost, and from then on the wait polls.
func (w *wait) woken(ctx context.Context, wake *backend.Wake, open bool) *lease {
	if !open {
		w.stop()
		w.noWakes = true // safeguard: closed-polls
		w.core.observeWake(ctx, WakeClosed)
		return nil
	}
	// Those who held meanwhile, whom the lease's own release names again. Who took the key free is
	// told of by nobody, and known to whom it was next to.
	if told := wake.Grant.Before; len(told) > 0 {
		w.before = told
	} else if len(w.before) > 0 {
		w.before = []backend.Past{{
			Meta: w.before[0].Meta,
			For:  time.Duration(w.core.now() - w.blocked),
		}}
	}
	l, reason := w.handedOver(ctx, wake), WakeSignal
	if l != nil {
		reason = WakeGrant
	}
	w.core.observeWake(ctx, reason, w.before...)
	if l == nil && len(wake.Grant.Before) == 0 {
		w.before = nil // an answer that names the next holder may not come
	}
	return l
}

// startHeartbeats has heartbeats keep the place that the claim has in the queue by the answer err.
// It returns nil if there is none, or no subscription to sleep by.
func (w *wait) startHeartbeats(err error) *place {
	var held *backend.HeldError
	if w.wakes == nil || !w.claim.Queue || w.core.beats.none.Load() || !errors.As(err, &held) ||
		held.Position == 0 {
		return nil
	}
	return w.core.beats.add(w, held)
}

// stopHeartbeats ends what startHeartbeats began, and takes over what the heartbeats were answered,
// as if the claim had asked: the last that was answered, and since when none was.
func (w *wait) stopHeartbeats(p *place) {
	if p == nil {
		return
	}
	w.core.beats.remove(p) // from here on p is ours alone
	if p.sent != w.queued {
		w.since, w.queued, w.refToken = w.core.toTime(p.sent), p.sent, p.held.Token
		w.last = w.core.estimate(&w.claim, p.held)
	}
	if !p.asked.IsZero() {
		w.since, w.unanswered = p.asked, true
	}
}

// pause is how long to sleep until it is time to ask without a wake-up: until nothing can be in the
// way any more as far as the last answer says, but no longer than the fallback interval, in which a
// wake-up may have been lost. A little more than that, at random, as others sleep until then, too.
func (w *wait) pause(err error) time.Duration {
	var quarantine *backend.QuarantineError
	var held *backend.HeldError
	switch {
	// Until then nothing can come, wake-ups included.
	case errors.As(err, &quarantine) && quarantine.RetryAfter > 0:
		return quarantine.RetryAfter + waiting.Jitter(2*time.Millisecond)
	case !errors.As(err, &held):
		if w.retry == nil {
			w.retry = waiting.NewBackoff(retryFirst, retryMost)
		}
		return w.retry.Next()
	}
	pause := waiting.Jitter(w.core.cfg.Wait.Fallback)
	if w.wakes == nil {
		if w.poll == nil {
			w.poll = waiting.NewBackoff(w.core.cfg.Wait.Initial, w.core.cfg.Wait.Max)
		}
		pause = w.poll.Next()
		// So that the place in the queue, which the claim keeps by asking, does not lapse.
		if w.claim.Queue { // safeguard: polled-place
			pause = min(pause, w.claim.WaiterTTL/3)
		}
	}
	if held.RetryAfter > 0 {
		pause = min(pause, held.RetryAfter+waiting.Jitter(2*time.Millisecond))
	}
	return pause
}

// handedOver returns the lease of a grant that came with a wake-up, if it can be proved without
// asking.
//
// Safety: what was written is a lease for this claim, by the release of the holder before, which is
// the first of its queue. The message may be late by any time, so it proves nothing by itself. But
// its token is above the key's last one at our last answered attempt or heartbeat, and the store
// hands out tokens in order: so the grant was made after the store had executed that request, its
// lease began later than that was sent, and counts from there. A message about a grant that may
// have lapsed has a token that the answer knew already, and is a wake-up like any other: the store
// is asked. So it is if little is left of the lease, as asking extends it. After a heartbeat that
// was not answered both the time and the token are those of the last that was
// (TestHandOverIsBelievedFromTheLastAnswer, TestLateHandOverIsNotBelieved,
// TestHandOverAfterAHeartbeat, TestHandOverWithLittleLeftIsClaimed).
func (w *wait) handedOver(ctx context.Context, wake *backend.Wake) *lease {
	g := wake.Grant
	// safeguard: hand-over-token
	if !wake.Granted || w.refToken == 0 || g.Token <= w.refToken || ctx.Err() != nil ||
		w.core.closing.Err() != nil {
		return nil
	}
	until, now := deadlineOf(w.queued, g.TTL), w.core.now() // safeguard: hand-over-deadline
	if time.Duration(until-now) < g.TTL/3 {
		return nil
	}
	return w.leaseOf(g, until, now)
}

// withdraw undoes a claim that came to nothing: its place in the queue, a grant whose reply was
// lost, and an attempt that is still in flight (refused by the tombstone when it lands).
//
// Safety: what is written is the release of this claim, and if an attempt was not answered a
// tombstone for it, which the store keeps for longer than a request can be on its way. So whatever
// the store executes first, nothing of the claim is there in the end: a grant that came before is
// released, one that comes after is refused. It names the claim's owner and can end no other's
// hold. Nobody believes in the claim: attempt has given no lease, or run would have returned it.
// What is not confirmed is repeated behind the caller, and if the store stays silent the lease ends
// by itself (TestUnansweredClaimIsWithdrawn, TestCancelledWaitLeavesNothing,
// TestWithdrawGoesOnBehindTheCaller, backendtest tombstone).
func (w *wait) withdraw(ctx context.Context) {
	if !w.asked || !w.unsure && !w.claim.Queue { // safeguard: withdraw
		return // every attempt was answered with a definite no, and there is no place in a queue
	}
	claim := w.claim               // which a heartbeat may be reading
	claim.NoneInFlight = !w.unsure // safeguard: withdraw-tombstone
	claim.NotBefore = 0            // what it would have done was not done
	w.core.withdraw(ctx, &claim, w.info)
}

// claim sets claim to what a call asks of the store, under a name that no other claim has. A
// re-entrant one has the name that its caller gave, which several claims share, and a hold of its
// own.
func (c *core) claim(ctx context.Context, op, key string, o *call, claim *backend.Claim) {
	claim.Key, claim.Owner = key, backend.NewOwner()
	claim.Mode, claim.Limit, claim.TTL = o.mode, o.limit, o.ttl
	claim.Weight, claim.Meta = o.weight, c.meta
	// Short: it goes to the store.
	claim.Meta.Note, claim.Meta.Since = o.note, time.Now().UTC().Truncate(time.Millisecond)
	if o.reentrant {
		claim.Reentrant, claim.Hold, claim.Owner = true, claim.Owner, o.owner
	}
	if op == opLock && c.caps.Queue && c.caps.Fencing &&
		(o.wait == waiting.Handoff || o.wait == waiting.Auto) {
		// Three heartbeats within the time that a place lasts, so that one may be lost. An attempt
		// of All before the key's turn takes no place, and so its refusal leaves nothing to
		// withdraw; safeguard: all-in-order
		claim.Queue, claim.WaiterTTL = !o.try, min(3*c.cfg.Wait.Fallback, backend.MaxTTL)
	}
	if c.cfg.Observer != nil {
		c.sign(ctx, claim)
	}
}
