package locker

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// A crewKey is what a local line forms for: exclusive claims of one key with one TTL, which can use each other's leases, and whose
// agent waits in one way.
type crewKey struct {
	key  string
	ttl  time.Duration
	wait waiting.Mode // that calls ask for; empty for the Client's
}

// An outcome is what an agent brings to one who waits: a lease, or why there is none. The zero outcome is Close's.
type outcome struct {
	baton *tenure
	err   error
}

// linesUp reports whether claims like this one wait in the local line, so that one of them at most is in the store. TryLock
// does not wait, and shared, counted and re-entrant claims have a hold of their own each.
func linesUp(op string, claim *backend.Claim) bool {
	return op != opTry && claim.Mode == backend.Exclusive && !claim.Reentrant
}

// fewPasses is how many tokens a claim asks for whose process has nobody waiting. Most of the time nobody comes, and a store
// whose tokens are microseconds gives out no more of them than time has passed since the last grant.
const fewPasses = 16

// reserve asks for a token for every time that the lease may be handed on.
func (c *core) reserve(claim *backend.Claim) {
	if c.cfg.Wait.Passes > 0 {
		claim.Reserve = min(c.cfg.Wait.Passes+1, backend.MaxReserve)
	}
}

// obtainInLine gets the lock for one of the goroutines of this process that want it. (claim is a pointer here and on, as copies of
// it would double the stack of every waiter.)
func (c *core) obtainInLine(ctx context.Context, claim *backend.Claim, hold Hold, o call) (*tenure, error) {
	k := crewKey{claim.Key, claim.TTL, o.wait}
	if o.failFast {
		if err := c.tooLate(ctx, k, o.waitLimit); err != nil {
			return nil, err
		}
	}
	c.reserve(claim)
	place, role := c.line.Join(k)
	switch role {
	case waiting.Ask:
		return c.first(ctx, k, claim, hold, o)
	case waiting.Send:
		c.send(ctx, k, claim, hold)
	}
	return c.await(ctx, k, place, o.waitLimit)
}

// tooLate is the error of a wait behind those who wait in the local line already, if it would be in vain; else nil.
func (c *core) tooLate(ctx context.Context, k crewKey, limit time.Duration) error {
	n, near := c.line.Waiting(k)
	if !near {
		return nil
	}
	ctx, cancel := bounded(ctx, limit)
	defer cancel()
	return inVain(ctx, c.blocker(k, n))
}

// first asks the store for its own caller, as nobody else of this process is there. However that ends, even by a panic of the
// backend, those who came meanwhile are seen to.
func (c *core) first(ctx context.Context, k crewKey, claim *backend.Claim, hold Hold, o call) (t *tenure, err error) {
	took := false
	defer func() {
		over := c.line.GaveUp
		if took {
			over = c.line.Took
		}
		if over(k) {
			c.send(ctx, k, claim, hold)
		}
	}()
	a := &acquisition{core: c, crew: k, claim: *claim, hold: hold, inLocalLine: true, failFast: o.failFast}
	a.claim.Reserve = min(a.claim.Reserve, fewPasses)
	t, err = c.ask(ctx, a, o.waitLimit, false)
	took = err == nil
	return t, err
}

// ask runs an acquisition, under a name of its own, to its end: a lease, or nothing left behind.
func (c *core) ask(ctx context.Context, a *acquisition, limit time.Duration, once bool) (*tenure, error) {
	if name := backend.NewOwner(); a.claim.Reentrant {
		a.claim.Hold = name
	} else {
		a.claim.Owner = name
	}
	l, err := a.run(ctx, once, limit)
	if err != nil {
		a.withdraw(ctx)
		return nil, err
	}
	a.claim.NoneInFlight = !a.unsure
	return c.newTenure(a, l, max(a.reserved-1, 0)), nil
}

// await waits for one's turn in the local line.
//
// Cancellation and turn may come together. Leave decides which it was: a baton that was given is given back.
func (c *core) await(outer context.Context, k crewKey, place *waiting.Place[outcome], limit time.Duration) (*tenure, error) {
	ctx, cancel := bounded(outer, limit)
	defer cancel()
	for range c.cfg.Wait.Spin {
		if len(place.Ready()) > 0 {
			break
		}
		runtime.Gosched()
	}
	select { // Close comes by Ready as well: a third case would cost each pass a tenth of a microsecond
	case o := <-place.Ready():
		switch {
		case o.baton == nil && o.err == nil: // Close
			why := c.blocker(k, 0)
			patiently(c.line.Agent(k))
			return nil, c.ended(outer, ctx, why)
		case o.err == nil && ctx.Err() != nil: // granted after the caller gave up
			c.giveBack(outer, o.baton)
			return nil, c.ended(outer, ctx, c.blocker(k, 0))
		case o.err == nil:
			o.baton.place = place
		}
		c.wokeInLine(ctx, o)
		return o.baton, o.err
	case <-ctx.Done():
	}
	why := c.blocker(k, c.line.Ahead(k, place))
	o, given, agent := c.line.Leave(k, place)
	if given && o.err == nil {
		c.giveBack(outer, o.baton)
	}
	patiently(agent) // it is withdrawing the claim that it made for us
	return nil, c.ended(outer, ctx, why)
}

// wokeInLine tells the observer what came of waiting in the local line.
func (c *core) wokeInLine(ctx context.Context, o outcome) {
	switch {
	case o.err != nil:
	case o.baton.passes > 0:
		c.woke(ctx, WakePass)
	default:
		c.woke(ctx, WakeLine)
	}
}

// bounded is ctx with a limit, if there is one.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

// blocker is what is known of who is in the way of one who is in the local line behind ahead others: what the store told who
// asked it, or one of this process.
func (c *core) blocker(k crewKey, ahead int) error {
	err, ok := c.line.Noted(k).(error)
	if !ok {
		err = &backend.HeldError{Position: 1, Holder: c.meta}
	}
	return c.reckoned(&backend.Claim{Key: k.key}, err, ahead)
}

// send starts an agent, which asks the store on behalf of the local line until nobody waits in it. The caller is counted in
// c.life. ctx gives values only: an agent outlives the call that sent it.
func (c *core) send(ctx context.Context, k crewKey, like *backend.Claim, hold Hold) {
	c.life.follow()
	claim := *like
	go func() {
		defer c.life.leave()
		e := errand{crewKey: k, claim: claim, hold: hold}
		for again := true; again; {
			again = c.run(context.WithoutCancel(ctx), &e)
		}
	}()
}

// An errand is what an agent does.
type errand struct {
	crewKey
	claim backend.Claim
	hold  Hold
}

// run makes one acquisition of an agent. It reports whether to ask again.
func (c *core) run(ctx context.Context, e *errand) (again bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	gone := make(chan struct{})
	defer close(gone)
	c.line.Sent(e.crewKey, stop, gone)
	ctx, end := c.begin(ctx, OpErrand, e.hold)
	a := &acquisition{core: c, crew: e.crewKey, claim: e.claim, hold: e.hold, contended: true, inLocalLine: true}
	c.sign(ctx, &a.claim)
	t, err := c.ask(ctx, a, 0, false)
	hold := e.hold
	if err == nil {
		hold.Token = t.token
	}
	end(hold, err) // before anybody can have it
	switch {
	case err == nil:
		given, again := c.line.Grant(e.crewKey, outcome{baton: t})
		if !given { // everybody left at the last moment
			c.drop(ctx, t)
		}
		return again
	case ctx.Err() != nil: // everybody left
		return c.line.GaveUp(e.crewKey)
	}
	c.line.Fail(e.crewKey, outcome{err: err})
	return false
}

// pass hands the lease of a hold that is over on to the next in the local line, if the budget allows and the lease is good for
// a while. The next hold has a token of its own, if the backend has tokens. Nobody asks the store about the lease meanwhile: the
// last hold is over, and the next has not begun. fit is what fit said then.
func (c *core) pass(t *tenure, now instant, fit bool) bool {
	if !fit || t.passes >= c.cfg.Wait.Passes || now.at.Sub(t.since) >= c.cfg.Wait.PassTime || c.caps.Fencing && t.spare == 0 {
		return false
	}
	if c.caps.Fencing {
		t.token++
		t.spare--
	}
	t.passes++
	t.handed = now.at
	used := t.place
	t.place = nil // from Pass on, t is the next one's
	return c.line.Pass(t.crew, outcome{baton: t}, used)
}

// fit reports whether the lease is good for a while yet, as far as is known. The caller has mu.
func (t *tenure) fit(now instant) bool {
	return !t.refuted && t.dead == nil && t.until.after(now) >= min(t.claim.TTL/2, t.c.cfg.Wait.Fallback)
}

// giveBack deals with a lease that came too late for who waited for it.
func (c *core) giveBack(ctx context.Context, t *tenure) {
	now := c.now()
	t.mu.Lock()
	fit := t.fit(now)
	t.mu.Unlock()
	if !c.pass(t, now, fit) {
		c.drop(ctx, t)
		c.line.Left(t.crew)
	}
}

// drop releases a lease that nobody uses, in the background.
func (c *core) drop(ctx context.Context, t *tenure) {
	t.end()
	c.leased(ctx, EventDrop, t)
	c.life.follow()
	go func() {
		defer c.life.leave()
		hold := Hold{Key: t.claim.Key, Token: t.token}
		err := c.release(ctx, t.claim, hold, orTTL(c.cfg.ReleaseTimeout, t.claim.TTL))
		if err != nil && !errors.Is(err, backend.ErrLost) {
			c.cfg.Logger.Warn("holdfast: could not give a lock back; its lease runs out by itself", "key", hold.Key, "error", err)
		}
	}()
}
