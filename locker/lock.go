package locker

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

const (
	opLock   = "lock"
	opTry    = "trylock"
	opDetach = "detach"
	opAdopt  = "adopt"

	// retryFirst and retryMost bound the sleep between two requests to a store that does not
	// answer.
	retryFirst = 25 * time.Millisecond
	retryMost  = 250 * time.Millisecond
)

// errSlow is a grant that came too late to be worth much. It is treated like no answer: repeating
// the attempt returns the same grant with its lease extended.
var errSlow = errors.New("store took longer than half the TTL to answer")

// acquire is Lock and TryLock: it ends with a guard, or with nothing held, queued or in flight.
func (c *Client[T]) acquire(ctx context.Context, op, key string, opts []Option) (*Guard[T], error) {
	g := &Guard[T]{}
	if err := c.core.acquire(ctx, op, key, opts, &g.handle); err != nil {
		return nil, &Error{op, key, err}
	}
	bound := false
	defer func() {
		if !bound { // bind failed, or panicked
			c.core.abandon(g.h)
		}
	}()
	var err error
	if g.v, err = c.bind(holdContext{&g.handle}, g.h.info); err != nil {
		return nil, &Error{"bind", key, &causes{[]error{ErrNotAcquired, err}}}
	}
	bound = true
	return g, nil
}

// acquire gets a lease, in whichever way the call allows, and makes a hold of it for g.
func (c *core) acquire(ctx context.Context, op, key string, opts []Option, g *handle) (err error) {
	if !c.enter() {
		return notAcquired(ctx, ErrClosed)
	}
	defer func() {
		if g.h == nil { // else the hold is what is counted
			c.done()
		}
	}()
	o := c.options(opts)
	info := Hold{Key: key, Mode: o.mode}
	ctx, end := c.observe(ctx, OpLock, info)
	l, err := c.obtain(ctx, op, info, &o)
	if err != nil {
		err = notAcquired(ctx, err)
		end(info, err)
		return err
	}
	info.Token, info.StoreKey = l.token, l.claim.Key
	if c.events != nil {
		c.observeLease(ctx, EventGrant, l)
	}
	g.h = c.newHold(ctx, l, info, end, &o, g)
	return nil
}

// options adds the options of one call up.
func (c *core) options(opts []Option) call {
	o := call{ttl: c.cfg.TTL, maxHold: c.cfg.MaxHold, failFast: c.cfg.Wait.FailFast}
	if len(opts) > 0 {
		given := o // escapes
		given.apply(opts)
		o = given
	}
	o.wait = cmp.Or(o.wait, c.cfg.Wait.Mode)
	if o.every > 0 { // in the queue nobody asks what a claim heeds
		if o.wait = waiting.Poll; c.caps.Watch {
			o.wait = waiting.Notify
		}
	}
	return o
}

// obtain gets a lease. Plain exclusive claims of one process share leases (see cohort); TryLock
// does not wait, and shared, counted and re-entrant claims each need a lease of their own.
func (c *core) obtain(ctx context.Context, op string, info Hold, o *call) (*lease, error) {
	if err := backend.ValidateKey(info.Key); err != nil { // the key itself: a namespace must not make "" a key
		return nil, err
	}
	if o.ttl != c.cfg.TTL || o.wait != c.cfg.Wait.Mode { // else New has checked them
		if err := c.check(o); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key := backend.Namespaced(c.cfg.Namespace, info.Key)
	if op != opLock {
		return c.lockAlone(ctx, op, key, info, o)
	}
	if !o.reentrant && heldBy(ctx, c.b, key) {
		return nil, ErrWouldDeadlock
	}
	limited := ctx
	if o.waitLimit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, o.waitLimit)
		defer cancel()
	}
	var l *lease
	var err error
	if o.mode == backend.Exclusive && !o.reentrant && o.weight == 0 && !o.load && o.every == 0 {
		l, err = c.lockTogether(limited, key, info, o)
	} else {
		l, err = c.lockAlone(limited, op, key, info, o)
	}
	if err != nil && ctx.Err() == nil { // Close and the wait limit are told here, the caller's ctx by notAcquired
		switch {
		case c.closing.Err() != nil && !errors.Is(err, ErrClosed):
			err = &causes{[]error{ErrClosed, err}}
		case limited.Err() != nil && !errors.Is(err, limited.Err()):
			err = &causes{[]error{limited.Err(), err}}
		}
	}
	return l, err
}

// check refuses what the options of a call ask for, if it cannot be had.
func (c *core) check(o *call) error {
	switch o.wait {
	case waiting.Auto, waiting.Handoff, waiting.Notify, waiting.Poll:
		if err := c.caps.Missing(modeNeeds(o.wait)); err != nil {
			return err
		}
		return validateTTL(o.ttl, c.caps)
	}
	return &backend.InvalidError{Field: "WaitMode", Value: string(o.wait), Reason: "is none of handoff, notify, poll"}
}

// lockAlone gets a lease that is shared with nobody.
func (c *core) lockAlone(ctx context.Context, op, key string, info Hold, o *call) (*lease, error) {
	skip := siteSkip + 1
	if o.load {
		skip-- // Store.Update has no Client in between
		if o.mode != backend.Exclusive || o.reentrant {
			return nil, &backend.InvalidError{Field: "mode", Value: o.mode.String(), Reason: "is not exclusive: a value has one writer"}
		}
	}
	runtime.Callers(skip, o.site[:])
	w := &wait{core: c, info: info, mode: o.wait, failFast: o.failFast && op == opLock}
	c.claim(ctx, op, key, o, &w.claim)
	w.claim.Load, w.claim.NotBefore = o.load, o.every
	if o.mode != backend.Exclusive || o.reentrant || o.weight != 0 || o.every > 0 { // a plain claim asks for nothing that a backend may lack
		if err := w.claim.Validate(c.caps); err != nil {
			return nil, err
		}
	}
	if op != opLock {
		l, err := w.once(ctx)
		switch {
		case o.ticket == "":
		case err == nil:
			if err := c.adopt(ctx, l, o.ticket); err != nil {
				return nil, err
			}
		case errors.Is(err, backend.ErrHeld), errors.Is(err, backend.ErrLost):
			err = lostBecause(err) // the owner holds no more
		}
		return l, err
	}
	l, err := w.run(ctx)
	if err != nil {
		w.withdraw(ctx)
	}
	return l, err
}

// claim sets claim to what a call asks of the store, under a name that no other claim has.
func (c *core) claim(ctx context.Context, op, key string, o *call, claim *backend.Claim) {
	claim.Key, claim.Owner, claim.Mode, claim.Limit, claim.TTL = key, backend.NewOwner(), o.mode, o.limit, o.ttl
	claim.Weight, claim.Meta = o.weight, c.meta
	claim.Meta.Since = time.Now().UTC().Truncate(time.Millisecond) // short: it goes to the store
	if o.reentrant {
		claim.Reentrant, claim.Hold, claim.Owner = true, claim.Owner, o.owner
	}
	if op == opLock && c.caps.Queue && c.caps.Fencing && (o.wait == waiting.Handoff || o.wait == waiting.Auto) {
		// Three heartbeats within the time that a place lasts, so that one may be lost.
		claim.Queue, claim.WaiterTTL = true, min(3*c.cfg.Wait.Fallback, backend.MaxTTL)
	}
	if c.cfg.Observer != nil {
		c.sign(ctx, claim)
	}
}

// A wait is one claim on its way from the first attempt to a lease, or to its withdrawal. It is
// used by one goroutine at a time.
type wait struct {
	core  *core
	claim backend.Claim
	info  Hold         // for the observer
	mode  waiting.Mode // how it waits

	cohort   *cohort           // for which it asks; nil: for one caller
	room     *lease            // for the lease, where there is some already
	finish   func(Hold, error) // with cohort: ends the operation of the lease
	failFast bool              // of that caller

	asked      bool           // an attempt was made
	unsure     bool           // one was not answered: it may have been granted, or may yet be
	since      time.Time      // when the first attempt was sent of those in a row that are not answered
	last       error          // the last definite answer, or why there was none since
	unanswered bool           // the last attempt got no definite answer
	before     []backend.Past // who held before the key was handed over to it
	queued     instant        // before the last attempt or heartbeat was sent that left the claim in the queue
	refToken   uint64         // the key's last token by the answer to it; 0 unknown

	wakes       <-chan backend.Wake // nil without a subscription
	unsubscribe context.CancelFunc
	noWakes     bool             // no subscription is to be had
	retry       *waiting.Backoff // between attempts that are not answered; nil until there is one
	poll        *waiting.Backoff // between attempts without a subscription; nil until there is one
}

// once is TryLock: one attempt, and another one with the same claim if the first was not answered.
func (w *wait) once(ctx context.Context) (*lease, error) {
	l, err := w.attempt(ctx)
	if err != nil && backend.AnswerOf(err) == backend.Unknown && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
		l, err = w.attempt(ctx)
	}
	if err != nil {
		w.withdraw(ctx)
	}
	return l, err
}

// attempt asks the store once. Three answers: nil is a lease with at least half of its TTL left; a
// definite no is the backend's; anything else leaves the claim unsure, so that it is repeated or
// withdrawn and never forgotten.
func (w *wait) attempt(ctx context.Context) (*lease, error) {
	c := w.core
	ctx, end := c.observe(ctx, OpAttempt, w.info)
	began := time.Now()
	sent := c.instant(began) // before the request: the lease cannot have begun earlier
	w.asked = true
	if !w.unanswered {
		w.since = began
	}
	var l *lease
	g, err := c.b.TryAcquire(ctx, w.claim)
	if err == nil {
		until, now := deadlineOf(sent, max(g.TTL, w.claim.TTL)), c.now()
		switch {
		case ctx.Err() != nil: // granted after the caller gave up: it is put back
			err = ctx.Err()
		case c.closing.Err() != nil: // or after Close began
			err = ErrClosed
		case time.Duration(until-now) < w.claim.TTL/2:
			err = errSlow
		default:
			c.heard()
			l = w.leaseOf(g, until, now)
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, backend.ErrHeld), errors.Is(err, backend.ErrQuarantined):
		w.since = began
		err = w.refused(ctx, sent, err)
	case backend.AnswerOf(err) == backend.Unknown:
		w.unsure, w.unanswered = true, true
		err = unanswered(err)
		if ctx.Err() == nil && !errors.Is(err, ErrClosed) && !errors.Is(err, context.Canceled) &&
			!errors.Is(err, context.DeadlineExceeded) {
			w.trouble(err) // no echo of a ctx
		}
	default:
		w.unanswered = true
		w.trouble(err)
	}
	info := w.info
	info.Token = g.Token
	end(info, err)
	return l, err
}

// refused takes note of a definite answer: another holds the key, or nothing is granted yet. It
// returns the answer with what this client makes of it.
func (w *wait) refused(ctx context.Context, sent instant, err error) error {
	w.core.heard()
	w.retry, w.unanswered = nil, false
	var held *backend.HeldError
	if errors.As(err, &held) {
		if w.claim.Queue {
			w.queued, w.refToken = sent, held.Token
		}
		w.core.contended(&w.claim)
		err = w.core.estimate(&w.claim, held, 0)
	}
	w.last = err
	if w.cohort != nil {
		w.core.noteRefusal(w, err)
	} else if w.failFast {
		if vain := inVain(ctx, err); vain != nil {
			err, w.last = vain, vain
		}
	}
	return err
}

// trouble keeps why there was no answer, for the error message.
func (w *wait) trouble(err error) {
	w.last = err
	if w.cohort != nil {
		w.core.noteTrouble(w.cohort, err)
	}
}

// heard takes note that the store answers.
func (c *core) heard() { c.answered.Store(int64(time.Since(c.base))) }

// unanswered reports whether the store has given a claim no definite answer since then for longer
// than the timeout. While others of this client are answered, the store is busy rather than away,
// and a claim is given four times as long.
func (c *core) unanswered(since time.Time, timeout time.Duration) bool {
	now := time.Now()
	alone, all := now.Sub(since), now.Sub(c.base.Add(time.Duration(c.answered.Load())))
	return alone >= timeout && (all >= timeout || alone >= 4*timeout)
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
	defer func() {
		w.stop()
		end(w.info, err)
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	refused := w.wakes != nil && !w.unanswered // by an attempt that came after the subscription
	if refused {
		err = w.last
	} else if w.wakes == nil && (w.cohort != nil || w.core.likelyHeld(&w.claim)) {
		w.subscribe(ctx) // before the attempt, which saves another one
	}
	for waits := w.cohort != nil; ; waits, refused = true, false {
		if !refused {
			l, err = w.attemptUntilClosed(ctx)
		}
		if err == nil || w.hopeless(ctx, err) {
			break
		}
		if !waits {
			ctx, end = w.core.observe(ctx, OpWait, w.info)
		}
		if errors.Is(err, backend.ErrHeld) && w.wakes == nil && w.subscribe(ctx) {
			continue
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

// attemptUntilClosed is attempt, which Close ends. Nothing of it stays while the claim sleeps:
// contexts are most of what a waiter costs. (A cohort's ctx is ended by Close.)
func (w *wait) attemptUntilClosed(ctx context.Context) (*lease, error) {
	if w.cohort != nil {
		w.core.noteAttempt(w.cohort)
		return w.attempt(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.core.closing, func() { cancel(ErrClosed) })()
	return w.attempt(ctx)
}

// hopeless reports whether another attempt is: nobody waits any more, the store refuses, or has
// been silent for too long, or the wait would be too long. (Silence in a cohort is each waiter's,
// see failUnanswered.)
func (w *wait) hopeless(ctx context.Context, err error) bool {
	return ctx.Err() != nil || w.core.closing.Err() != nil ||
		backend.Refused(err) || errors.Is(err, backend.ErrLost) || errors.Is(err, ErrWouldTimeout) ||
		w.cohort == nil && backend.AnswerOf(err) != backend.Yes && !errors.Is(err, backend.ErrHeld) &&
			!errors.Is(err, backend.ErrQuarantined) && w.core.unanswered(w.since, w.core.storeTimeout(w.claim.TTL))
}

// subscribe asks for wake-ups and reports whether it has them. Where they are not to be had,
// waiting goes on by polling. A subscription that takes longer than the fallback interval is given
// up: the key may be free by now.
func (w *wait) subscribe(ctx context.Context) bool {
	if w.noWakes || !w.core.caps.Watch || w.mode == waiting.Poll {
		return false
	}
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx)) // lasts until stop, also when the acquirer goes on
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

// sleep waits until it is worth asking again: a wake-up, the end of the lease that blocks, the
// fallback interval, or the loss of the place. Or until the key is handed over, which needs no
// attempt: then it returns the lease. With a place in the queue its heartbeats take the place of
// asking.
func (w *wait) sleep(ctx context.Context, err error) *lease {
	var due <-chan time.Time
	var ask <-chan struct{}
	p := w.enterQueue(err)
	if p != nil {
		ask = p.ask
	} else {
		due = time.After(w.pause(err))
	}
	select {
	case wake, open := <-w.wakes:
		w.leaveQueue(p)
		return w.woken(ctx, &wake, open)
	case <-due:
		w.core.observeWake(ctx, WakeDue)
	case <-ask:
		w.core.observeWake(ctx, WakeDue)
	case <-ctx.Done():
	case <-w.core.closing.Done():
	}
	w.leaveQueue(p)
	return nil
}

// woken takes a wake-up, and returns the lease if the key was handed over.
func (w *wait) woken(ctx context.Context, wake *backend.Wake, open bool) *lease {
	if !open {
		w.stop()
		w.noWakes = true
		w.core.observeWake(ctx, WakeClosed)
		return nil
	}
	w.before = wake.Grant.Before
	l := w.handedOver(ctx, wake)
	if l != nil {
		w.core.observeWake(ctx, WakeGrant, wake.Grant.Before...)
	} else {
		w.core.observeWake(ctx, WakeSignal, wake.Grant.Before...)
	}
	return l
}

// enterQueue has heartbeats keep the place that the claim has in the queue by the answer err. It
// returns nil if there is none, or no subscription to sleep by.
func (w *wait) enterQueue(err error) *place {
	var held *backend.HeldError
	if w.wakes == nil || !w.claim.Queue || w.core.beats.none.Load() || !errors.As(err, &held) || held.Position == 0 {
		return nil
	}
	return w.core.beats.enter(w, held)
}

// leaveQueue ends what enterQueue began, and takes over what the heartbeats were answered, as if
// the claim had asked: the last that was answered, and since when none was.
func (w *wait) leaveQueue(p *place) {
	if p == nil {
		return
	}
	w.core.beats.leave(p)
	if p.sent != w.queued {
		w.since, w.queued, w.refToken = w.core.local(p.sent), p.sent, p.held.Token
		w.last = w.core.estimate(&w.claim, p.held, 0)
	}
	if !p.asked.IsZero() {
		w.since, w.unanswered = p.asked, true
	}
}

// pause is how long to sleep until it is time to ask without a wake-up.
func (w *wait) pause(err error) time.Duration {
	var quarantine *backend.QuarantineError
	var held *backend.HeldError
	switch {
	case errors.As(err, &quarantine) && quarantine.RetryAfter > 0: // nothing can come before, wake-ups included
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
	}
	if held.RetryAfter > 0 {
		pause = min(pause, held.RetryAfter+waiting.Jitter(2*time.Millisecond))
	}
	return pause
}

// handedOver returns the lease of a grant that came with a wake-up, if it can be proved without
// asking. Its token is above the key's last one at our last answered attempt or heartbeat, so the
// grant was made after the store had executed that: its lease began later than that was sent, and
// counts from there. A message that was late, about a grant that may have lapsed, has a token that
// the answer knew already. A grant with little left is asked for, which extends it.
func (w *wait) handedOver(ctx context.Context, wake *backend.Wake) *lease {
	g := wake.Grant
	if !wake.Granted || w.refToken == 0 || g.Token <= w.refToken || ctx.Err() != nil || w.core.closing.Err() != nil {
		return nil
	}
	until, now := deadlineOf(w.queued, g.TTL), w.core.now()
	if time.Duration(until-now) < g.TTL/3 {
		return nil
	}
	return w.leaseOf(g, until, now)
}

// withdraw undoes a claim that came to nothing: its place in the queue, a grant whose reply was
// lost, and an attempt that is still in flight (refused by the tombstone when it lands).
func (w *wait) withdraw(ctx context.Context) {
	if !w.asked || !w.unsure && !w.claim.Queue {
		return // every attempt was answered with a definite no, and there is no place in a queue
	}
	claim := w.claim // which a heartbeat may be reading
	claim.NoneInFlight = !w.unsure
	claim.NotBefore = 0 // what it would have done was not done
	w.core.forget(ctx, &claim, w.info)
}
