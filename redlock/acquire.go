package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// mostMeetings is how often in a row a claim that meets others halfway asks again by itself.
const mostMeetings = 16

// TryAcquire asks all nodes at once, and returns as soon as a majority has granted c, or cannot any more. What the others grant is
// kept if it was, and given back if it was not. Where claims met halfway and none got a majority, it asks again a few times, at random, for the
// double node timeout at most: a free key is then granted to one of those who ask at once. If that fails, HeldError.RetryAfter is random.
func (r *Backend) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if err := r.validate(c); err != nil {
		return backend.Grant{}, err
	}
	if err := r.start(ctx); err != nil {
		return backend.Grant{}, err
	}
	defer r.tasks.Done()
	u := r.enter(c, true)
	defer u.leave()
	select { // copies of one attempt go one after another: they are one acquisition, with one token
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
	case <-ctx.Done():
		return backend.Grant{}, ctx.Err()
	}
	limit := time.Now().Add(2 * r.cfg.timeout(c.TTL))
	for tries := 1; ; tries++ {
		a := u.attempt(ctx, c)
		g, err := a.run()
		if !a.met || tries == mostMeetings || time.Now().After(limit) || !waiting.Pause(ctx, r.apart(tries)) {
			return g, err
		}
	}
}

// validate refuses what no majority can grant as asked.
func (r *Backend) validate(c backend.Claim) error {
	if err := c.Validate(r.caps.Capabilities); err != nil {
		return err
	}
	return r.cfg.fits(c)
}

// start is what every verb begins with. On success the caller ends with tasks.Done.
func (r *Backend) start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !r.begin() {
		return backend.ErrClosed
	}
	return nil
}

// An attempt is one TryAcquire. What is not set from the start is guarded by mu.
type attempt struct {
	*claimRun
	ctx    context.Context
	spell  *spell
	claim  backend.Claim
	began  time.Time
	votes  *votes
	tokens tokens
	met    bool // another halfway
	repeat bool // it repeats what a majority granted
	verdict
}

func (u *claimRun) attempt(ctx context.Context, c backend.Claim) *attempt {
	a := &attempt{claimRun: u, ctx: ctx, claim: c, began: time.Now(), votes: u.red.poll(), tokens: u.red.tokens(), verdict: newVerdict()}
	a.spell = newSpell(ctx, u.red.cfg.timeout(c.TTL))
	return a
}

// run makes an attempt. A yes rests on a majority that holds at this moment, each node for a lease that began after the
// attempt did. Two claims that exclude each other cannot both have that: their majorities have a node in common, which holds
// for one of them.
func (a *attempt) run() (backend.Grant, error) {
	a.ask()
	select {
	case <-a.reached:
	case <-a.ctx.Done(): // what is on its way is in the lanes: a release comes behind it
	}
	a.mu.Lock()
	defer a.unlock()
	if !a.over {
		a.over = true
		return backend.Grant{}, a.ctx.Err()
	}
	if list := a.strange(); list != "" && !a.repeat {
		a.mu.Unlock()
		err := a.red.otherList(a.ctx, list)
		a.mu.Lock()
		if err != nil {
			return backend.Grant{}, a.giveUp(err)
		}
	}
	if g, ok := a.won(); ok {
		return a.keep(g)
	}
	return backend.Grant{}, a.lose()
}

// settle ends the attempt if the votes decide it. The caller has mu.
func (a *attempt) settle() {
	if a.over {
		return
	}
	if _, won := a.won(); won || a.votes.yes+a.votes.pending() < a.red.quorum && !a.buried() && !a.unclear() {
		a.reach()
	}
}

// buried reports whether the answers to come may still show that the claim was released, which is another no than being held off.
func (a *attempt) buried() bool {
	lost, spare := a.votes.lost(), len(a.lanes)-a.red.quorum
	return lost > 0 && lost <= spare && lost+a.votes.pending() > spare && a.votes.pending() > 0
}

// ask sends the attempt to every node that is worth asking.
func (a *attempt) ask() {
	asked := a.red.asked()
	a.mu.Lock()
	defer a.unlock()
	a.repeat = a.token != 0
	a.token, a.ended = 0, false
	for i := range a.lanes {
		a.lanes[i].done = false
	}
	if a.wish == 0 {
		a.wish = a.red.wish(a.began)
	}
	floor := a.wish
	for i := range a.lanes {
		if asked[i] {
			a.queue(i, func() { a.try(i, floor) })
		} else {
			a.votes.count(i, errPassedOver)
		}
	}
	a.settle()
}

// try asks node i for the claim, in its lane. If a majority has decided meanwhile, the node is brought in line with that.
func (a *attempt) try(i int, floor uint64) {
	a.mu.Lock()
	on := a.on(i, a.claim)
	if a.ctx.Err() != nil {
		a.hear(i, backend.Grant{}, errNotSent)
		a.pass(i)
		a.unlock()
		return
	}
	a.mu.Unlock()
	on.MinToken = floor
	a.claimRun.ask(a.spell, i, backend.Acquire, on, func(g backend.Grant, err error) {
		l := &a.lanes[i]
		switch backend.AnswerOf(err) {
		case backend.Yes:
			l.held, l.token = true, g.Token
		case backend.No: // an earlier attempt without answer may still come to be
			l.held = false
		default:
			l.unsure = true
		}
		a.hear(i, g, err)
		if token := a.token; token != 0 {
			a.follow(i, func() { a.align(a.spell, i, a.claim, token) })
		}
	})
}

// hear takes node i's answer to the attempt. The caller has mu.
func (a *attempt) hear(i int, g backend.Grant, err error) {
	if a.over {
		return
	}
	a.votes.count(i, err)
	if err == nil {
		a.tokens.granted(i, g)
	}
	a.heard()
}

// obeyed takes node i's answer to the order to store token. The caller has mu.
func (a *attempt) obeyed(i int, token uint64, err error) {
	if a.over {
		return
	}
	if err == nil {
		a.tokens.confirmed(i, token)
	} else {
		a.tokens.drop(i)
		a.votes.count(i, err)
	}
	a.heard()
}

// heard does what is due after an answer. The caller has mu.
func (a *attempt) heard() {
	if a.votes.yes >= a.red.quorum && a.red.caps.Fencing {
		a.writeBack()
	}
	a.settle()
}

// won returns the grant, if a majority has made it: with the same token, if there are tokens.
func (a *attempt) won() (backend.Grant, bool) {
	if a.votes.yes < a.red.quorum {
		return backend.Grant{}, false
	}
	g := backend.Grant{TTL: a.claim.TTL, Reserved: a.tokens.reservation(a.claim)}
	if a.red.caps.Fencing {
		if a.tokens.backing() < a.red.quorum {
			return backend.Grant{}, false
		}
		g.Token = a.tokens.highest
	}
	return g, true
}

// keep takes the grant, unless it came late, and lets the stragglers follow it. The caller has mu.
func (a *attempt) keep(g backend.Grant) (backend.Grant, error) {
	elapsed := time.Since(a.began)
	a.red.took(elapsed)
	if least := a.red.cfg.MinValidity; least > 0 && a.claim.TTL-elapsed < least {
		return backend.Grant{}, a.votes.failed(errLate)
	}
	a.splits = 0
	a.token = g.Token
	for i := range a.lanes {
		if l := &a.lanes[i]; l.held && l.token != g.Token && g.Token != 0 {
			a.queue(i, func() { a.align(a.spell, i, a.claim, g.Token) })
		}
	}
	return g, nil
}

// lose gives back what was granted, and says why there is no majority. With the nodes that did not answer there may be one:
// then nothing is given back, and the answer is unknown. The caller has mu.
func (a *attempt) lose() error {
	if a.votes.yes+a.votes.pending()+a.votes.unknown >= a.red.quorum {
		var causes []error
		for i, err := range a.votes.errs {
			if a.votes.heard[i] && backend.AnswerOf(err) == backend.Unknown {
				causes = append(causes, err)
			}
		}
		return a.votes.failed(causes...)
	}
	a.red.took(time.Since(a.began))
	return a.giveUp(a.refusal())
}

// giveUp gives back what was granted, and returns why. The caller has mu.
func (a *attempt) giveUp(why error) error {
	a.wish = 0
	for i := range a.lanes {
		if l := &a.lanes[i]; l.busy || l.held || l.unsure {
			a.queue(i, func() { a.giveBack(a.spell, i, a.claim) })
		}
	}
	return why
}

// giveBack ends what node i has of a claim that came to nothing, so that the claim can be made again there. If nothing of it is on
// its way, a settled release does; else this name of it is buried, and the next attempt has another.
func (u *claimRun) giveBack(s *spell, i int, c backend.Claim) {
	u.mu.Lock()
	l := &u.lanes[i]
	on := u.on(i, c)
	on.NoneInFlight = !l.unsure
	if !l.held && !l.unsure {
		u.pass(i)
		u.unlock()
		return
	}
	u.mu.Unlock()
	u.ask(s, i, backend.Release, on, func(_ backend.Grant, err error) {
		failed := backend.AnswerOf(err) == backend.Unknown || errors.Is(err, backend.ErrUnavailable)
		if failed || !on.NoneInFlight {
			l.gen++
		}
		l.held, l.unsure = false, false
		if failed {
			u.owe(i, on)
		}
	})
}
