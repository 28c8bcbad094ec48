package redlock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// maxCollisions is how often in a row TryAcquire tries again by itself where claims collide and
// none gets a majority.
const maxCollisions = 16

// TryAcquire asks all nodes at once and returns as soon as a majority has granted c, or cannot any
// more. What the others grant is kept if c was granted, else withdrawn. If claims collide
// and none gets a majority, it withdraws what it got and tries again at random, for twice the node
// timeout at most, so that a free key is granted to one of those who ask at once.
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
	select { // concurrent copies of one attempt are one acquisition with one token: one at a time
	case u.acquiring <- struct{}{}:
		defer func() { <-u.acquiring }()
	case <-ctx.Done():
		return backend.Grant{}, ctx.Err()
	}
	if g, err := u.repeat(ctx, c); backend.AnswerOf(err) != backend.No {
		return g, err
	}
	limit := time.Now().Add(2 * r.cfg.timeout(c.TTL))
	for tries := 1; ; tries++ {
		a := u.begin(ctx, acquire, c, tries)
		g, err := a.wait(ctx)
		if !a.collided || tries == maxCollisions || time.Now().After(limit) {
			return g, err
		}
		if !waiting.Pause(ctx, a.jitter()) {
			return g, err
		}
	}
}

// repeat returns the grant that a majority made of the claim before, as long as a majority proves
// the hold: asked again, nodes that granted later might tell a higher token. It is a no if there is
// none.
func (c *claim) repeat(ctx context.Context, cl backend.Claim) (backend.Grant, error) {
	c.mu.Lock()
	g := c.grant
	c.mu.Unlock()
	if g.TTL == 0 {
		return g, backend.ErrLost
	}
	if _, err := c.begin(ctx, renew, cl, 0).wait(ctx); err != nil { // safeguard: quorum-repeat
		return backend.Grant{}, err
	}
	g.TTL = cl.TTL
	return g, nil
}

// Renew extends the hold on the nodes that have it, and succeeds when they are a majority. Only
// nodes that prove the hold count, so a yes extends what was continuous on each of them. Then the
// nodes that lack the hold are asked to take it, in the background; they count from the next
// renewal on. It is lost when too few nodes are left, and is then released everywhere, as a
// minority would block others for nothing.
func (r *Backend) Renew(ctx context.Context, c backend.Claim) error {
	if err := r.validate(c); err != nil {
		return err
	}
	return r.ask(ctx, renew, c)
}

// Release releases c on all nodes that may have been reached, and returns when a majority has: nil
// if a majority held until now. A node that does not answer is told in the background until the
// lease has run out. It tells of nobody who waited: a quorum has no queue.
func (r *Backend) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	if err := c.ValidateRelease(r.Capabilities()); err != nil {
		return backend.Released{}, err
	}
	return backend.Released{}, r.ask(ctx, release, c)
}

// ask makes one round of v.
func (r *Backend) ask(ctx context.Context, v verb, c backend.Claim) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	defer r.tasks.Done()
	u := r.enter(c, false)
	defer u.leave()
	_, err := u.begin(ctx, v, c, 0).wait(ctx)
	return err
}

// validate refuses what no majority can grant as asked.
func (r *Backend) validate(c backend.Claim) error {
	if err := c.Validate(r.caps); err != nil {
		return err
	}
	return r.cfg.fits(c)
}

// longestTombstone and four TTLs are for how long a node of ours keeps a tombstone at most: on etcd
// they share leases, which may be twice as long as what they are for.
const longestTombstone = 3 * time.Minute

// A claim is what this client knows of one claim on each node. The nodes know it better, so it can
// be forgotten at any time: then each node is asked as if it might hold, and a release leaves
// tombstones. But a claim that is asked for again when it was forgotten has its first name again,
// which nodes may refuse that have a tombstone of it. Fields are guarded by mu unless they say
// otherwise.
type claim struct {
	red       *Backend
	key       claimKey
	acquiring chan struct{} // one slot, taken by TryAcquire

	// How long the record is kept when nobody uses it, which is longer than nodes have tombstones
	// of its names, and until when. Guarded by red.mu.
	idle     time.Duration
	forgetAt time.Time

	mu       sync.Mutex // taken after red.mu, if both are
	users    int        // calls and workers
	complete bool       // every attempt of this claim was made through this record
	released bool       // Release was called
	over     bool       // and a majority has answered yes, or no
	// the token that nodes are asked for, until it is refused; 0 not chosen yet
	minToken uint64
	grant    backend.Grant // that a majority made; zero if none, or it was released or lost
	target   uint64        // the token that every node that holds must store; 0 none
	last     *round        // the last acquire or renew
	shares   []share       // by node
}

type claimKey struct{ key, owner string }

// A share is one node's part in a claim. Its requests are made one at a time by one worker, which
// lives while there are any: each is answered, or given up after the node timeout, before the next
// is sent. So a release never overtakes its own acquire, and an acquire that was not sent before
// the release is not sent at all.
type share struct {
	busy  bool     // there is a worker
	queue []*round // that are still to be made here

	holds    bool   // the node granted, and nothing is known to have ended that
	inFlight bool   // an attempt was not answered: the node may hold, or may grant later
	token    uint64 // of the hold
	asked    uint64 // the highest token that the node was asked to store

	withdraw bool // release what the attempt left here
	fill     bool // acquire what is missing here

	// generation tells the names apart that the claim has had on this node: an attempt without
	// answer that is withdrawn leaves a tombstone of its name, and the next one needs another.
	generation int

	gone   bool  // the node has confirmed the release,
	goneAs error // with this answer
}

// absent reports whether the node certainly has nothing of the claim.
func (s *share) absent() bool { return !s.holds && !s.inFlight }

// A request is what a worker does next.
type request struct {
	verb  verb
	round *round        // whose ctx and node timeout it has
	claim backend.Claim // as the node is to see it
	votes bool          // the answer counts in round
}

// enter returns the record of c, or a new one, for a call that ends with leave.
func (r *Backend) enter(c backend.Claim, fresh bool) *claim {
	k := claimKey{c.Key, c.ID()}
	r.mu.Lock()
	defer r.mu.Unlock()
	looked := 0
	for _, u := range r.claims { // two random ones: so none stays for long after its time
		u.forget()
		if looked++; looked == 2 {
			break
		}
	}
	if old := r.claims[k]; old != nil {
		old.forget() // if its time is over, and not by the chance of having been looked at
	}
	u := r.claims[k]
	if u == nil {
		u = &claim{red: r, key: k, complete: fresh}
		u.acquiring, u.shares = make(chan struct{}, 1), make([]share, len(r.nodes))
		r.claims[k] = u
	}
	// safeguard: names-remembered
	u.idle = max(u.idle, 4*min(max(c.TTL, 0), backend.MaxTTL)+longestTombstone)
	u.forgetAt = time.Now().Add(u.idle)
	u.mu.Lock()
	u.users++
	u.mu.Unlock()
	return u
}

// leave ends a call's or a worker's use.
func (c *claim) leave() {
	c.mu.Lock()
	c.users--
	unused := c.users == 0
	c.mu.Unlock()
	if unused {
		c.red.mu.Lock()
		defer c.red.mu.Unlock()
		c.forgetAt = time.Now().Add(c.idle)
		c.forget()
	}
}

// forget drops the record if nobody uses it, and nothing is lost by it or it is older than a
// tombstone may be. The caller has red.mu.
func (c *claim) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users == 0 && (c.finished() || time.Now().After(c.forgetAt)) && c.red.claims[c.key] == c {
		delete(c.red.claims, c.key)
	}
}

// finished reports whether no node has anything of the claim, or its release has an outcome. The
// caller has mu.
func (c *claim) finished() bool {
	if c.released {
		return c.over
	}
	return !slices.ContainsFunc(c.shares, func(s share) bool {
		return !s.absent() || s.generation > 0
	})
}

// wake gives node i's share a worker, if it has none and there is something to do. The caller has
// mu.
func (c *claim) wake(i int) {
	s := &c.shares[i]
	if s.busy { // safeguard: release-behind-acquire
		return
	}
	s.busy = true
	if q, ok := c.next(i); ok {
		c.users++
		c.red.tasks.Add(1) // Close still waits for the call or the worker that we are in
		go c.work(i, q)
		return
	}
	s.busy = false
}

// work makes node i's requests until there are no more.
func (c *claim) work(i int, q request) {
	defer c.red.tasks.Done()
	defer c.leave()
	for ok := true; ok; {
		g, err := c.red.nodes[i].do(q)
		c.mu.Lock()
		c.answered(i, q, g, err)
		if q, ok = c.next(i); !ok {
			c.shares[i].busy = false
		}
		c.mu.Unlock()
	}
}

// next takes what node i is to be asked next. What an attempt left is withdrawn before the next
// attempt is made. The caller has mu.
func (c *claim) next(i int) (request, bool) {
	for s := &c.shares[i]; ; {
		switch {
		case s.withdraw:
			s.withdraw = false
			if !s.absent() {
				q := c.request(i, release, c.last)
				q.claim.NoneInFlight = !s.inFlight
				return q, true
			}
		case len(s.queue) > 0:
			r := s.queue[0]
			s.queue = s.queue[1:]
			if q, ok := r.request(i); ok {
				return q, true
			}
		// safeguard: told-once
		case s.holds && s.token < c.target && s.asked < c.target && !c.released:
			s.asked = c.target
			q := c.request(i, renew, c.last)
			q.claim.MinToken = min(c.target, backend.MaxMinToken)
			q.votes = c.last.verb == acquire
			return q, true
		case s.fill:
			// Safety: it only keeps others out, and no answer rests on this node before it has
			// proved the hold in a renewal. An attempt that was not answered does not stand in the
			// way: it has the same name as this one, so whichever is executed later repeats the
			// other. inFlight stays, so the release leaves a tombstone that refuses it.
			s.fill = false
			if !s.holds && !c.released { // safeguard: fill-unanswered
				return c.request(i, acquire, c.last), true
			}
		default:
			return request{}, false
		}
	}
}

// request makes a request of v to node i, with r's claim as that node knows it. The caller has mu.
func (c *claim) request(i int, v verb, r *round) request {
	on := r.claim
	on.TTL = min(c.red.cfg.lease(on.TTL), backend.MaxTTL) // beyond is a release of what was refused
	on.MinToken = 0
	on.Owner = generation(on.Owner, c.shares[i].generation)
	on.Meta.Quorum = r.shown
	return request{verb: v, round: r, claim: on}
}

// answered records node i's answer to q. The caller has mu.
func (c *claim) answered(i int, q request, g backend.Grant, err error) {
	s := &c.shares[i]
	answer := backend.AnswerOf(err)
	switch q.verb {
	case acquire:
		switch {
		case answer == backend.Yes:
			s.holds, s.token = true, g.Token
		case answer == backend.Unknown:
			s.inFlight = true
		// Who has looked. Others, as in quarantine, may hold from before. inFlight stays: an
		// earlier attempt without answer may still be executed. safeguard: not-served-is-held
		case errors.Is(err, backend.ErrHeld), errors.Is(err, backend.ErrLost):
			s.holds = false
		}
	case renew:
		switch {
		case answer == backend.Yes:
			s.holds = s.holds || c.complete // what another client acquired is not ours to release
			s.token = max(s.token, q.claim.MinToken)
		case errors.Is(err, backend.ErrLost): // safeguard: refused-is-not-lost
			s.holds = false
		}
	case release:
		c.releasedOn(i, q, err)
	}
	if q.votes {
		q.round.answered(i, q, g, err)
	}
}

// releasedOn records node i's answer to a release. If it is not confirmed, the node is owed one.
// The caller has mu.
func (c *claim) releasedOn(i int, q request, err error) {
	s := &c.shares[i]
	confirmed := answered(err)
	if !confirmed {
		c.red.nodes[i].owe(q.claim)
	}
	switch {
	case !q.votes: // withdrawn
		if !confirmed || !q.claim.NoneInFlight {
			s.generation++ // safeguard: given-back
		}
		s.holds, s.inFlight = false, false
	case confirmed:
		s.gone, s.goneAs, s.holds, s.inFlight = true, err, false, false
	}
}

// withdrawAll ends what the nodes have of an attempt that came to nothing, or of a hold that is
// lost, so that the claim can be made again. Where an attempt was not answered, that leaves a
// tombstone. The caller has mu.
func (c *claim) withdrawAll() {
	c.minToken, c.grant, c.target = 0, backend.Grant{}, 0
	for i := range c.shares {
		if c.released {
			break // the release does it
		}
		c.shares[i].withdraw = true
		c.wake(i)
	}
}

// fillIn asks the nodes that lack the hold to take it, those that are still to answer when they
// have. The caller has mu.
func (c *claim) fillIn() {
	if !c.complete {
		return
	}
	for i, healthy := range c.red.healthy() {
		c.shares[i].fill = healthy
		c.wake(i)
	}
}

// separator is between an owner and its generation. Owners of [backend.NewOwner] do not have it.
const separator = "~"

// generation is the n-th name of owner. A long one is cut: names only need to differ, and the end
// is where owners differ.
func generation(owner string, n int) string {
	if n == 0 {
		return owner
	}
	tail := separator + strconv.Itoa(n)
	return owner[max(0, len(owner)+len(tail)-backend.MaxOwner):] + tail
}

// ownerOf undoes generation, for people.
func ownerOf(name string) string {
	if owner, n, ok := strings.Cut(name, separator); ok {
		if _, err := strconv.Atoi(n); err == nil {
			return owner
		}
	}
	return name
}
