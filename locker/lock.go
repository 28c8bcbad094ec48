package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// acquire gets a lease, in whichever way the call allows, and makes a hold of it for g. What it
// counts for Close, from the first line, goes on to the hold, which drops it when it is finished:
// so Close finds each call either waiting, or refused, or with a hold.
func (c *core) acquire(ctx context.Context, op, key string, o *call, g *handle) (err error) {
	if !c.enter() {
		return notAcquired(ctx, ErrClosed)
	}
	defer func() {
		if g.h == nil { // else the hold is what is counted
			c.done()
		}
	}()
	info := Hold{Key: key, Mode: o.mode, Note: o.note}
	if len(c.cfg.Classes) > 0 {
		info.Class = c.class(key)
	}
	ctx, end := c.observe(ctx, OpLock, info)
	l, err := c.obtain(ctx, op, info, o)
	if err != nil {
		err = notAcquired(ctx, err)
		end(info, err)
		return err
	}
	info.Token, info.StoreKey, info.TookOver = l.token, l.claim.Key, cmp.Or(l.tookOver, o.tookOver)
	if c.events != nil {
		c.observeLease(ctx, EventGrant, l)
	}
	g.h = c.newHold(ctx, l, info, end, o, g)
	return nil
}

// options adds the options of one call up, and validates them. (A call without any is defaults,
// which New has validated.)
func (c *core) options(op string, opts []Option) call {
	o := c.defaults
	o.wait = ""
	o.apply(opts)
	o.err = c.validate(op, &o)
	o.wait = cmp.Or(o.wait, c.defaults.wait)
	if o.once { // in the queue nobody asks what a claim heeds
		if o.wait = waiting.Poll; c.caps.Watch {
			o.wait = waiting.Notify
		}
	}
	return o
}

// obtain gets a lease. Plain exclusive claims of one process share leases (see cohort); TryLock
// does not wait, and shared, counted and re-entrant claims each need a lease of their own. So do
// those that load or leave something, as it goes to the store with their own grant and release.
func (c *core) obtain(ctx context.Context, op string, info Hold, o *call) (*lease, error) {
	// The key without its namespace, which must not make "" a key.
	if err := backend.ValidateKey(info.Key); err != nil {
		return nil, err
	}
	if err := cmp.Or(o.err, ctx.Err()); err != nil {
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
	if o.failFast {
		o.failBy, _ = limited.Deadline()
	}
	var l *lease
	var err error
	if o.mode == backend.Exclusive && !o.reentrant && o.weight == 0 && !o.load && !o.once {
		l, err = c.lockTogether(limited, key, info, o)
	} else {
		if o.try {
			op = opTry
		}
		l, err = c.lockAlone(limited, op, key, info, o)
	}
	if err != nil && ctx.Err() == nil {
		err = c.whatEnded(limited, err)
	}
	return l, err
}

// whatEnded adds to err that Close or the wait limit ended the wait, if it does not say so. (What
// the caller's own ctx did notAcquired says.)
func (c *core) whatEnded(limited context.Context, err error) error {
	switch {
	case c.closing.Err() != nil && !errors.Is(err, ErrClosed):
		return &causes{[]error{ErrClosed, err}}
	case limited.Err() != nil && !errors.Is(err, limited.Err()):
		return &causes{[]error{limited.Err(), err}}
	}
	return err
}

// lockAlone gets a lease that is shared with nobody. Its claim is this call's from the first
// attempt to the lease or the withdrawal, also if its ctx ends: nothing of it is left when the call
// returns, or its release is pending.
func (c *core) lockAlone(ctx context.Context, op, key string, info Hold, o *call) (*lease, error) {
	if o.site == (site{}) {
		skip := siteSkip + 1
		if o.load {
			skip-- // Store.Update has no Client in between
		}
		runtime.Callers(skip, o.site[:])
	}
	w := &wait{core: c, info: info, noWakes: o.wait == waiting.Poll, failBy: o.failBy}
	c.claim(ctx, op, key, o, &w.claim)
	w.claim.Load, w.claim.NotBefore = o.load, o.every
	// A plain claim asks for nothing that a backend may lack.
	if o.mode != backend.Exclusive || o.reentrant || o.weight != 0 || o.once {
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

// adopt gives a lease that was just granted to the ticket's owner the place of the hold that was
// detached, by releasing that.
//
// Safety: the store answers a release with a yes to one only, and only if that hold lasted until
// then. So of those who enter with a ticket, one is told yes, and the others release what they
// got; and as the owner held until then, by that hold and by this lease, nobody else did since it
// was detached. Without an answer it may have been either, so this lease is released, too.
func (c *core) adopt(ctx context.Context, l *lease, hold string) error {
	detached := l.claim
	// safeguard: adopted-tombstone
	detached.Hold, detached.NoneInFlight, detached.Before = hold, false, nil
	ctx, end := c.observe(ctx, OpRelease, l.info)
	_, err := c.b.Release(ctx, detached)
	end(l.info, err)
	if err == nil { // safeguard: ticket
		return nil
	}
	l.releaseBehind(ctx)
	if errors.Is(err, backend.ErrLost) {
		err = fmt.Errorf("the ticket was used before, or its lease has ended: %w", err)
		return lostBecause(err)
	}
	return wrapUnknown(err)
}
