package redlock

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/jitter"
)

// A verb is what a node is asked to do with a claim.
type verb uint8

const (
	acquire verb = iota
	renew
	release
)

// A round asks all nodes for one verb, and counts their answers until they decide. It is guarded by
// its claim's mu.
type round struct {
	c       *claim
	verb    verb
	claim   backend.Claim
	shown   string          // what nodes show of the claim to those whom it keeps out
	ctx     context.Context // of the requests: the caller's, without its end
	timeout time.Duration   // of each request
	ask     []bool          // the nodes that are worth asking
	began   time.Time

	votes
	over  bool // decided, or abandoned: no vote counts any more
	done  chan struct{}
	grant backend.Grant
	err   error

	// Of an acquire.
	tokens   tokens
	tries    int  // of the call, this one included
	collided bool // with another claim, and nobody has a majority
}

// begin makes a round: it is behind every earlier one on each node. The caller does not have mu.
func (c *claim) begin(ctx context.Context, v verb, cl backend.Claim, tries int) *round {
	r := &round{
		c: c, verb: v, claim: cl, shown: shown(cl, *c.red.list.Load(), c.red.caps),
		began: time.Now(), tries: tries, ctx: context.WithoutCancel(ctx),
		timeout: c.red.cfg.timeout(cl.TTL),
		votes:   c.red.newVotes(), done: make(chan struct{}),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.ask = c.askable(v)
	if a := c.last; a != nil && a.verb == acquire && !a.over {
		// No node is told of its token any more: it would wait for that for ever.
		c.target, a.collided = 0, false
		a.end(a.failed()) // safeguard: acquire-cut-short
	}
	switch v {
	case acquire:
		c.last, c.released, c.over = r, false, false
		r.tokens = tokens{nodes: make([]counter, len(c.shares))}
		c.grant, c.target = backend.Grant{}, 0
		if c.minToken == 0 {
			c.minToken = c.red.minToken(r.began)
		}
		for i := range c.shares {
			c.shares[i].gone, c.shares[i].asked = false, 0
		}
	case renew:
		c.last = r
	case release:
		c.released, c.grant = true, backend.Grant{}
	}
	for i := range c.shares {
		if !r.ask[i] && v != release { // a release that is owed has its turn like any other
			r.count(i, c.red.nodes[i].skipped())
			continue
		}
		c.shares[i].queue = append(c.shares[i].queue, r)
	}
	for i := range c.shares {
		c.wake(i)
	}
	r.decide()
	return r
}

// askable returns which nodes a round goes to: those that are healthy. If those of them that hold,
// as far as is known, are no majority, but with all that may hold they can be, it goes to all.
// Every node may come to hold by an acquire. The caller has mu.
func (c *claim) askable(v verb) []bool {
	ask, healthy, all := c.red.healthy(), 0, 0
	for i := range c.shares {
		s := &c.shares[i]
		holds := v == acquire || !c.complete || s.holds || s.gone
		if holds || s.busy || s.inFlight {
			all++
		}
		if holds && ask[i] { // safeguard: enough-that-hold
			healthy++
		}
	}
	if healthy < c.red.quorum && all >= c.red.quorum {
		for i := range ask {
			ask[i] = true
		}
	}
	return ask
}

// request makes r's request to node i, unless the vote is known without it. The caller has mu.
func (r *round) request(i int) (request, bool) {
	c := r.c
	s := &c.shares[i]
	missing := c.complete && s.absent()
	q := c.request(i, r.verb, r)
	q.votes = true
	switch {
	case r.verb == acquire && (c.released || r.over && r.grant.TTL == 0):
		// The claim was released: a request would need another release behind it.
		r.count(i, errNotSent)
	case r.verb == renew && (c.released || missing):
		r.count(i, errNotHeld)
	case r.verb == release && s.gone:
		r.count(i, s.goneAs)
	case r.verb == release && missing && (r.claim.NoneInFlight || !r.ask[i]):
		s.gone, s.goneAs = true, errNotHeld
		r.count(i, errNotHeld)
	case !r.ask[i]:
		c.red.nodes[i].owe(q.claim)
		r.count(i, c.red.nodes[i].skipped()) // safeguard: owed-is-counted
	default:
		r.instruct(&q.claim, s)
		return q, true
	}
	r.decide()
	return request{}, false
}

// instruct puts into the claim of a request what the round's verb says to one node. The caller has
// mu.
func (r *round) instruct(claim *backend.Claim, s *share) {
	switch r.verb {
	case acquire:
		claim.MinToken = r.c.minToken
	case renew:
		claim.MinToken = min(r.c.grant.Token, backend.MaxMinToken) // safeguard: renewal-tells
	case release:
		// No tombstone only if every attempt is known to have been answered here. Else one may
		// still be executed, or one of another client or of a record that was forgotten, and
		// must be refused.
		// safeguard: quorum-tombstone
		claim.NoneInFlight = r.claim.NoneInFlight && r.c.complete && !s.inFlight
	}
}

// answered takes node i's answer to q. The caller has mu.
func (r *round) answered(i int, q request, g backend.Grant, err error) {
	if r.over {
		return
	}
	switch {
	case q.verb == r.verb:
		r.count(i, err)
		if r.verb == acquire && err == nil {
			r.tokens.granted(i, g)
		}
	case err == nil: // a hold whose token was raised
		r.tokens.confirmed(i, q.claim.MinToken) // safeguard: told-not-highest
	default:
		r.tokens.drop(i)
		r.count(i, lapsed(err)) // safeguard: lapsed-asks-anew
	}
	r.decide()
}

// lapsed is a node's answer where it granted, and does not confirm the token. That the lease ended
// in between, as the node is slow or has forgotten, is a no to this attempt, and not to the claim:
// ErrLost of an acquire says that the claim was released.
func lapsed(err error) error {
	if errors.Is(err, backend.ErrLost) {
		return errLapsed
	}
	return err
}

// decide ends the round if the votes decide it, with all that follows from it. The caller has mu.
func (r *round) decide() {
	switch {
	case r.over:
	case r.verb == acquire:
		r.decideAcquire()
	case r.yes >= r.quorum: // safeguard: majority-renews
		r.end(nil)
		if r.verb == renew {
			r.c.fillIn()
			return
		}
		r.c.over = true
		for i := range r.c.shares { // a second release did not hold
			if s := &r.c.shares[i]; s.gone {
				s.goneAs = errNotHeld
			}
		}
	case len(r.errs)-r.lost() < r.quorum: // too few are left to be a majority
		r.end(r.failed(backend.ErrLost))
		if r.verb == release {
			r.c.over = true
		} else {
			r.c.withdrawAll()
		}
	// safeguard: quorum-lost-to-come
	case r.yes+r.pending() < r.quorum && len(r.errs)-r.lost()-r.pending() >= r.quorum:
		r.end(r.undecided()) // and no answer to come makes it another
	}
}

// decideAcquire is decide of an acquire. A yes rests on a majority that holds at this moment, each
// node for a lease that began after the round did. Two claims that exclude each other cannot both
// have that: their majorities have a node in common, which holds for one of them. With tokens, a
// majority has also stored the highest that any node granted; see token.go.
func (r *round) decideAcquire() {
	c := r.c
	granted := r.yes >= r.quorum
	if granted && c.red.caps.Fencing && r.tokens.backing() < r.quorum {
		granted, c.target = false, r.tokens.highest
		for i := range c.shares { // those with a lower token are told
			c.wake(i)
		}
	}
	if !granted && r.yes+r.pending() >= r.quorum {
		return
	}
	var why error
	if !granted {
		var final bool
		if why, final = r.refusal(); !final && r.pending() > 0 {
			return
		}
	}
	c.target = 0
	if err := r.otherList(); err != nil {
		r.end(err)
		c.withdrawAll() // safeguard: other-list-gives-back
		return
	}
	switch {
	case granted:
		// safeguard: drift-not-granted
		r.grant = backend.Grant{TTL: r.claim.TTL, Reserved: r.tokens.reservation(r.claim)}
		if c.red.caps.Fencing {
			r.grant.Token = r.tokens.highest
		}
		r.end(nil)
		c.grant, c.target = r.grant, r.grant.Token
		for i := range c.shares {
			c.wake(i)
		}
	case r.yes+r.pending()+r.unknown >= r.quorum:
		// With the nodes that did not answer there may be a majority: nothing is withdrawn, and
		// the answer is unknown.
		r.collided = false
		r.end(r.failed(r.causes()...))
	default:
		r.end(why)
		c.withdrawAll()
	}
}

// undecided is the error of a round in which no majority said yes, or no. A release never says so
// that it was not made: a node that has not confirmed it is told again behind the caller, and says
// to a repeat that it does not hold.
func (r *round) undecided() error {
	err := r.inconclusive()
	if r.verb == release && errors.Is(err, backend.ErrUnavailable) { // safeguard: release-is-owed
		return r.failed()
	}
	return err
}

func (r *round) end(err error) {
	r.over, r.err = true, err
	close(r.done)
}

// wait returns what the majority said, or that ctx has ended. Then what is in flight stays so: a
// release comes behind it.
func (r *round) wait(ctx context.Context) (backend.Grant, error) {
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if !r.over { // safeguard: left-is-unknown
		r.over = true
		r.c.target = 0
		return backend.Grant{}, ctx.Err()
	}
	return r.grant, r.err
}

// refusal is what the noes amount to: what stands in the way of a majority for good, or who holds,
// or what else it is. It is final when so many say the same that the answers to come cannot change
// it; a claim that was released must hear so, and claims that collided must not take each other for
// a holder and go away from a key that is free.
func (r *round) refusal() (err error, final bool) {
	said := r.noes()
	switch spare := len(r.errs) - r.quorum; { // so many may say no to the end
	case said.refused > spare:
		return r.failed(said.why), true
	case said.lost > spare:
		return r.failed(backend.ErrLost), true
	case said.away > spare:
		return r.failed(backend.ErrUnavailable), true
	case said.held != nil:
		holder, taken := r.taken()
		if r.collided = r.yes > 0 && !taken; r.collided {
			// All release what they got, and the first to try again wins.
			if d := r.jitter(); said.when == 0 || d < said.when {
				said.when = d
			}
		}
		held := &backend.HeldError{RetryAfter: said.when, Holder: holder}
		return held, said.lost == 0 && (taken || r.collided)
	case said.quarantine != nil:
		return &backend.QuarantineError{RetryAfter: said.when, Why: said.quarantine.Why}, true
	}
	return r.failed(backend.ErrUnavailable), said.lost == 0
}

// noes are the nodes that have not said yes, by what they said.
type noes struct {
	lost, refused, away int
	why                 error              // of a refusal
	held                *backend.HeldError // any of them
	quarantine          *backend.QuarantineError
	when                time.Duration // until a majority may grant, 0 if nobody knows
}

// noes counts them.
func (r *round) noes() (said noes) {
	// How long until each node may grant; MaxInt64 if nobody knows.
	waits := make([]time.Duration, len(r.errs))
	longest := time.Duration(0) // lease of a holder
	for i, err := range r.errs {
		var h *backend.HeldError
		var q *backend.QuarantineError
		switch {
		case err == nil, err == errWaiting: //nolint:errorlint // itself
			continue
		case errors.As(err, &h):
			waits[i], longest, said.held = h.RetryAfter, max(longest, h.RetryAfter), h
		case errors.As(err, &q):
			waits[i], said.quarantine = q.RetryAfter, q
		case errors.Is(err, backend.ErrLost):
			said.lost++
		case backend.Refused(err):
			said.refused, said.why = said.refused+1, err // safeguard: refused-counted
		default:
			said.away++ // safeguard: away-counted
		}
		if waits[i] <= 0 {
			waits[i] = math.MaxInt64
		}
	}
	for i, err := range r.errs {
		if err == errWaiting { //nolint:errorlint // itself
			waits[i] = longest // by whoever holds the others, or 0: free
		}
	}
	slices.Sort(waits)
	if when := waits[r.quorum-1]; when != math.MaxInt64 {
		said.when = when
	}
	return said
}

// jitter is how long a claim waits that has collided with another: at random, and longer than its
// round took, so that one of the two is through before the other tries again. The more often that
// happened, the longer.
func (r *round) jitter() time.Duration {
	d := min(max(time.Since(r.began), time.Millisecond), maxNodeTimeout)
	return d + jitter.N(d<<min(r.tries, 4))
}

// taken reports whether a majority is held by one claim, and whose it is, as far as the answers
// say:
// who holds fewer nodes holds nothing. Where nodes do not say who holds, it is not known and is
// assumed: waiters are woken.
func (r *round) taken() (holder backend.Meta, taken bool) {
	holders, tagged := map[backend.Meta]int{}, false
	for _, h := range r.held() {
		who := h.Holder
		// Nodes may show the same claim with other lists, as a server was restarted between its
		// attempts, and with its time in other zones.
		_, who.Quorum, _ = strings.Cut(who.Quorum, "/") // safeguard: one-claim
		who.Since = who.Since.Round(0).UTC()            // safeguard: one-holder
		if holders[who]++; holders[who] >= r.quorum && who != (backend.Meta{}) {
			who.Quorum = ""
			return who, true
		}
		if who.Quorum != "" {
			tagged = true
		} else if holder == (backend.Meta{}) {
			holder = who
		}
	}
	if tagged {
		return backend.Meta{}, false
	}
	return holder, true
}

// otherList is an error if a holder's list of nodes is certainly not ours, as far as the answers
// say.
func (r *round) otherList() error {
	for _, h := range r.held() {
		list, _, _ := strings.Cut(h.Holder.Quorum, "/")
		if err := r.c.red.mismatch(list); err != nil {
			return err
		}
	}
	return nil
}

// votes are the nodes' answers.
type votes struct {
	nodes   []*node
	quorum  int
	errs    []error // errWaiting until it has answered
	yes     int
	no      int // certainly not, and nothing is in flight
	unknown int
}

func (r *Backend) newVotes() votes {
	return votes{
		nodes: r.nodes, quorum: r.quorum,
		errs: slices.Repeat([]error{errWaiting}, len(r.nodes)),
	}
}

// count counts node i's answer. Its last one stands.
func (v *votes) count(i int, err error) {
	if v.errs[i] != errWaiting { //nolint:errorlint // itself
		*v.of(v.errs[i])--
	}
	v.errs[i] = err
	*v.of(err)++
}

func (v *votes) of(err error) *int {
	switch backend.AnswerOf(err) {
	case backend.Yes:
		return &v.yes
	case backend.No: // safeguard: vote-unknown
		return &v.no
	}
	return &v.unknown
}

// pending is how many nodes have not answered.
func (v *votes) pending() int { return len(v.errs) - v.yes - v.no - v.unknown }

// lost is how many nodes certainly do not have what was asked about.
func (v *votes) lost() (n int) {
	for _, err := range v.errs {
		if err != nil && errors.Is(err, backend.ErrLost) {
			n++
		}
	}
	return n
}

// held returns the refusals that tell of a holder.
func (v *votes) held() (all []*backend.HeldError) {
	for _, err := range v.errs {
		var h *backend.HeldError
		if err != nil && errors.As(err, &h) {
			all = append(all, h)
		}
	}
	return all
}

// causes are the answers that are unknown.
func (v *votes) causes() (causes []error) {
	for _, err := range v.errs {
		//nolint:errorlint // itself
		if err != errWaiting && backend.AnswerOf(err) == backend.Unknown {
			causes = append(causes, err)
		}
	}
	return causes
}

// failed makes an error of the votes, which is what is says.
func (v *votes) failed(is ...error) error {
	e := &QuorumError{Need: v.quorum, is: is}
	for i, n := range v.nodes {
		e.Nodes = append(e.Nodes, NodeError{n.name, v.errs[i]})
	}
	return e
}

// inconclusive is the error where no majority said yes, or no.
func (v *votes) inconclusive() error {
	causes, refusals, refusal := v.causes(), 0, error(nil)
	if v.pending() > 0 {
		causes = append(causes, errWaiting)
	}
	for _, err := range v.errs {
		if err != nil && backend.Refused(err) {
			refusals, refusal = refusals+1, err
		}
	}
	switch {
	case refusals > len(v.errs)-v.quorum:
		return v.failed(refusal)
	case len(causes) == 0:
		return v.failed(backend.ErrUnavailable)
	}
	return v.failed(causes...)
}
