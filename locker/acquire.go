package locker

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

const (
	opTry = "trylock"

	// retryFirst and retryMost bound the sleep between two questions to a store that does not answer.
	retryFirst = 25 * time.Millisecond
	retryMost  = 250 * time.Millisecond

	// withdrawGrace is how long a failing Lock waits for its clean-up, so that usually nothing is left when it returns.
	// A store that takes longer is cleaned up behind the caller's back.
	withdrawGrace = 100 * time.Millisecond
)

// errSlow is a grant that came too late to be worth much. It is treated like no answer: asking again with the same claim
// returns the same grant with its lease extended.
var errSlow = errors.New("store took longer than half the TTL to answer")

// A lease is a grant that is believed in.
type lease struct {
	token uint64
	until deadline
}

// acquire makes one claim and sees it through: it ends with a keeper, or with nothing held, queued or on its way.
func (c *core) acquire(ctx context.Context, op, key string, opts []Option, caller site) (k *keeper, err error) {
	if !c.life.enter() {
		return nil, notAcquired(ctx, ErrClosed)
	}
	defer func() {
		if k == nil { // else the keeper is what is under way
			c.life.leave()
		}
	}()
	o := c.call(opts)
	hold := Hold{Key: key, Mode: o.mode}
	waitCtx, end := c.begin(ctx, OpWait, hold)
	t, err := c.obtain(waitCtx, op, hold, o)
	if err != nil {
		err = notAcquired(ctx, err)
		end(hold, err)
		return nil, err
	}
	hold.Token = t.token
	c.leased(waitCtx, EventGrant, t)
	end(hold, nil)
	return c.keep(waitCtx, t, hold, caller), nil
}

// call adds the options of one call up.
func (c *core) call(opts []Option) call {
	if len(opts) == 0 {
		return call{ttl: c.cfg.TTL, failFast: c.cfg.Wait.FailFast}
	}
	o := call{ttl: c.cfg.TTL, failFast: c.cfg.Wait.FailFast} // escapes
	o.apply(opts)
	return o
}

// obtain makes the claim, in the local line or straight in the store.
func (c *core) obtain(ctx context.Context, op string, hold Hold, o call) (*tenure, error) {
	var claim backend.Claim
	if err := c.claim(ctx, op, hold.Key, o, &claim); err != nil {
		return nil, err
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case op != opTry && !claim.Reentrant && holds(ctx, c.b, claim.Key):
		return nil, ErrWouldDeadlock
	}
	if linesUp(op, &claim) {
		return c.obtainInLine(ctx, &claim, hold, o)
	}
	a := &acquisition{
		core: c, crew: crewKey{claim.Key, claim.TTL, o.wait}, claim: claim, hold: hold, failFast: o.failFast && op != opTry,
	}
	return c.ask(ctx, a, o.waitLimit, op == opTry)
}

// An acquisition is one Lock or TryLock at work.
type acquisition struct {
	core  *core
	crew  crewKey
	claim backend.Claim
	hold  Hold

	contended bool // known to be held or wanted: subscribe before the first question, which saves the second

	asked  bool             // a question was sent
	unsure bool             // a question was not answered: it may have been granted, or may yet be
	silent time.Time        // since when the store gives no answer; zero while it does
	last   error            // the last answer, for the error message; never an echo of ctx
	retry  *waiting.Backoff // between unanswered questions; nil until there is one
	poll   *waiting.Backoff // between questions without a subscription; nil until then

	subscribe bool // whether to ask for wake-ups
	wakes     <-chan backend.Wake
	leave     context.CancelFunc // ends them

	inLocalLine bool // those who wait in it are told of each definite no
	failFast    bool

	reserved int     // tokens of the grant
	inLine   instant // before the last question that was answered with a place in line was sent
	atToken  uint64  // the key's last token at that answer; 0 unknown
}

// run asks once; a call that may wait then waits. The error is what ended it, and wraps the last answer.
func (a *acquisition) run(outer context.Context, once bool, limit time.Duration) (lease, error) {
	ctx, cancel := bounded(outer, limit)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return lease{}, err
	}
	defer a.unwatch()
	l, err := lease{}, error(backend.ErrHeld)
	if !a.contended {
		l, err = a.ask(ctx)
	}
	switch {
	case err == nil || a.hopeless(ctx, err):
	case !once:
		l, err = a.wait(ctx, err)
	case backend.AnswerOf(err) == backend.Unknown: // not an answer yet: the same claim again, which is idempotent
		l, err = a.ask(ctx)
	}
	if err == nil {
		return l, nil
	}
	return lease{}, a.failure(outer, ctx, err)
}

// failure is why the acquisition came to nothing.
func (a *acquisition) failure(outer, ctx context.Context, err error) error {
	if a.last != nil {
		err = a.last
	}
	return a.core.ended(outer, ctx, unanswered(err))
}

// ended adds to err what ended the wait, if anything did: Close, or the wait limit. The caller's own ctx is left to
// notAcquired.
func (c *core) ended(outer, ctx context.Context, err error) error {
	switch {
	case outer.Err() != nil:
		return err
	case c.life.closing.Err() != nil:
		return &causes{[]error{ErrClosed, err}}
	case ctx.Err() != nil:
		return &causes{[]error{ctx.Err(), err}}
	}
	return err
}

// wait is the only wait loop. err is why the question before it was not granted.
//
// No wake-up is missed: the subscription is active before watch returns, and only then the store is asked again, so a
// release either comes before that question, which finds the key free, or after it, and then signals. No wake-up is trusted:
// each is followed by a question, whose answer alone counts, or carries a grant that handedOver can prove. None is relied on:
// the sleep ends by itself.
func (a *acquisition) wait(ctx context.Context, err error) (lease, error) {
	a.subscribe = a.wakes == nil && a.mayWatch()
	var l lease
	for !a.hopeless(ctx, err) {
		subscribed := a.subscribe && a.wakes == nil && errors.Is(err, backend.ErrHeld) && a.watch(ctx)
		if !subscribed && a.asked {
			if granted, ok := a.sleep(ctx, err); ok {
				return granted, nil
			}
		}
		if a.over(ctx) {
			break
		}
		if l, err = a.askUntilClosed(ctx); err == nil {
			return l, nil
		}
	}
	return lease{}, err
}

// over reports whether nobody waits any more.
func (a *acquisition) over(ctx context.Context) bool {
	return ctx.Err() != nil || a.core.life.closing.Err() != nil
}

// askUntilClosed is ask, which Close ends. (An agent ends with the local line, which Close closes.) Nothing of that stays while the
// acquisition sleeps: contexts are most of what a waiter costs.
func (a *acquisition) askUntilClosed(ctx context.Context) (lease, error) {
	if a.contended {
		return a.ask(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.core.life.closing, func() { cancel(ErrClosed) })()
	return a.ask(ctx)
}

// ask makes one attempt. Three answers: nil is a lease with at least half of its TTL left; a definite no is the backend's;
// everything else leaves the acquisition unsure, so that it is repeated or withdrawn and never forgotten.
func (a *acquisition) ask(ctx context.Context) (l lease, err error) {
	attemptCtx, end := a.core.begin(ctx, OpAttempt, a.hold)
	g, sent, err := a.try(attemptCtx)
	if err == nil {
		l = lease{g.Token, deadlineOf(sent, max(g.TTL, a.claim.TTL))}
		switch {
		case ctx.Err() != nil: // granted after the caller gave up: put it back
			err = ctx.Err()
		case a.core.life.closing.Err() != nil: // or after Close began
			err = ErrClosed
		case a.core.remaining(l.until) < a.claim.TTL/2:
			err = errSlow
		}
	}
	switch {
	case err == nil:
		a.reserved = g.Reserved
	case errors.Is(err, backend.ErrHeld), errors.Is(err, backend.ErrQuarantined):
		err = a.refused(ctx, sent, err)
	default:
		a.unsure = a.unsure || backend.AnswerOf(err) == backend.Unknown
		if a.silent.IsZero() {
			a.silent = sent.at
		}
		if ctx.Err() == nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
			!errors.Is(err, ErrClosed) {
			a.last = err
		}
	}
	h := a.hold
	h.Token = l.token
	end(h, err)
	return l, err
}

// try asks. sent is before the request: the lease cannot have begun earlier.
func (a *acquisition) try(ctx context.Context) (g backend.Grant, sent instant, err error) {
	sent = a.core.now()
	if err := ctx.Err(); err != nil {
		return g, sent, err
	}
	a.asked = true
	g, err = a.core.b.TryAcquire(ctx, a.claim)
	return g, sent, err
}

// refused takes note of a definite answer: another holds. It returns the answer with what we make of it.
func (a *acquisition) refused(ctx context.Context, sent instant, err error) error {
	if a.retry != nil {
		a.retry.Reset()
	}
	err = a.core.reckoned(&a.claim, err, 0)
	if a.inLocalLine {
		a.core.line.Note(a.crew, err)
	}
	var held *backend.HeldError
	if a.claim.Queue && errors.As(err, &held) {
		a.inLine, a.atToken = sent, held.Token
	}
	if a.failFast {
		if vain := inVain(ctx, err); vain != nil {
			err = vain
		}
	}
	a.silent, a.last = time.Time{}, err
	return err
}

// hopeless reports whether asking again is: nobody waits any more, the store refuses, it has been silent for too long, or the
// wait would be.
func (a *acquisition) hopeless(ctx context.Context, err error) bool {
	return a.over(ctx) || backend.Refused(err) || errors.Is(err, backend.ErrLost) ||
		errors.Is(err, ErrWouldTimeout) ||
		!a.silent.IsZero() && time.Since(a.silent) >= orTTL(a.core.cfg.StoreTimeout, a.claim.TTL)
}
