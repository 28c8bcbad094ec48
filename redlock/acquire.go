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

// An attempt is one TryAcquire.
type attempt struct {
	*claimRun
	ctx     context.Context
	spell   *spell
	claim   backend.Claim
	began   time.Time
	votes   *votes
	answers chan vote
	tokens  tokens
	met     bool // another halfway
}

func (u *claimRun) attempt(ctx context.Context, c backend.Claim) *attempt {
	a := &attempt{claimRun: u, ctx: ctx, claim: c, began: time.Now(), votes: u.red.poll(), tokens: u.red.tokens()}
	a.spell = newSpell(ctx, u.red.cfg.timeout(c.TTL))
	a.answers = make(chan vote, 4*len(u.lanes)) // no request ever waits for us: an attempt, and an order or two, from each
	return a
}

// run makes an attempt. A yes rests on a majority that holds at this moment, each node for a lease that began after the
// attempt did. Two claims that exclude each other cannot both have that: their majorities have a node in common, which holds
// for one of them.
func (a *attempt) run() (backend.Grant, error) {
	a.ask()
	for {
		if g, ok := a.won(); ok {
			return a.keep(g)
		}
		if a.votes.yes+a.votes.pending() < a.red.quorum && !a.buried() && !a.unclear() {
			return backend.Grant{}, a.lose()
		}
		select {
		case v := <-a.answers:
			a.hear(v)
		case <-a.ctx.Done():
			return backend.Grant{}, a.ctx.Err() // what is on its way is in the lanes: a release comes behind it
		}
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
	defer a.mu.Unlock()
	a.token, a.ended = 0, false
	for i := range a.lanes {
		a.lanes[i].done = false
	}
	if a.wish == 0 {
		a.wish = a.red.wish(a.began)
	}
	floor := a.wish
	for i := range a.lanes {
		if !asked[i] {
			a.votes.count(i, errPassedOver)
			continue
		}
		a.queue(i, func() {
			if a.ctx.Err() != nil {
				a.answers <- vote{node: i, err: errNotSent}
				return
			}
			g, err := a.try(a.spell, i, a.claim, floor)
			a.answers <- vote{node: i, grant: granted{g.Token, g.Reserved}, err: err}
		})
	}
}

// try asks node i for the claim, in its lane. If a majority has decided meanwhile, the node is brought in line with that.
func (u *claimRun) try(s *spell, i int, c backend.Claim, floor uint64) (g backend.Grant, err error) {
	u.mu.Lock()
	on := u.on(i, c)
	u.mu.Unlock()
	on.Floor = floor
	err = u.send(s, i, func(ctx context.Context, b backend.Backend) (err error) {
		g, err = b.TryAcquire(ctx, on)
		return err
	})
	u.mu.Lock()
	l := &u.lanes[i]
	switch backend.AnswerOf(err) {
	case backend.Yes:
		l.held, l.token = true, g.Token
	case backend.No: // an earlier attempt without answer may still come to be
		l.held = false
	default:
		l.unsure = true
		g = backend.Grant{}
	}
	token := u.token
	u.mu.Unlock()
	if token != 0 {
		u.align(s, i, c, token)
	}
	return g, err
}

// hear takes an answer to an attempt or an order.
func (a *attempt) hear(v vote) {
	switch {
	case v.fence != 0:
		if v.err == nil {
			a.tokens.confirmed(v.node, v.fence)
			return
		}
		a.tokens.drop(v.node)
		a.votes.count(v.node, v.err)
	default:
		a.votes.count(v.node, v.err)
		if v.err == nil {
			a.tokens.granted(v.node, v.grant)
		}
	}
	if a.votes.yes >= a.red.quorum && a.red.caps.Fencing {
		a.writeBack()
	}
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

// keep takes the grant, unless it came late, and lets the stragglers follow it.
func (a *attempt) keep(g backend.Grant) (backend.Grant, error) {
	elapsed := time.Since(a.began)
	a.red.took(elapsed)
	if least := a.red.cfg.MinValidity; least > 0 && a.claim.TTL-elapsed < least {
		return backend.Grant{}, a.votes.failed(errLate)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
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
// then nothing is given back, and the answer is unknown.
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
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wish = 0
	a.red.took(time.Since(a.began))
	for i := range a.lanes {
		if l := &a.lanes[i]; l.busy || l.held || l.unsure {
			a.queue(i, func() { a.giveBack(a.spell, i, a.claim) })
		}
	}
	return a.refusal()
}

// giveBack ends what node i has of a claim that came to nothing, so that the claim can be made again there. If nothing of it is on
// its way, a settled release does; else this name of it is buried, and the next attempt has another.
func (u *claimRun) giveBack(s *spell, i int, c backend.Claim) {
	u.mu.Lock()
	l := &u.lanes[i]
	on := u.on(i, c)
	on.Settled = !l.unsure
	nothing := !l.held && !l.unsure
	u.mu.Unlock()
	if nothing {
		return
	}
	err := u.send(s, i, func(ctx context.Context, b backend.Backend) error { return b.Release(ctx, on) })
	failed := backend.AnswerOf(err) == backend.Unknown || errors.Is(err, backend.ErrUnavailable)
	u.mu.Lock()
	if failed || !on.Settled {
		l.gen++
	}
	l.held, l.unsure = false, false
	u.mu.Unlock()
	if failed {
		u.red.nodes[i].owe(on)
	}
}
