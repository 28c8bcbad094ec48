package record

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// A Record is all that a store has of one key: a lock as data, with the rules of [backend.Backend]
// as its methods. The zero Record is a key that nobody has ever locked. It has no lock of its own:
// whoever calls a method sees to it that nobody else uses the record, and that what the method has
// changed is kept as a whole or not at all.
//
// Every now is by one clock, which the store's clients share. Time passes in a record only when a
// method looks: whoever's verb comes next ends what has run out, and advances the queue.
type Record struct {
	// in order of grant; those that have run out are dropped by Trim
	Holds []Hold  `json:",omitempty"`
	Queue []Place `json:"Line,omitempty"` // first come, first
	// the last that was granted; a store that forgets records begins new ones at one above all of
	// them
	Token uint64
	// the last token of an exclusive hold that has run out since the last grant
	Lapsed uint64 `json:",omitempty"`
	// by Claim.ID: released claims whose attempts may be in flight, and until when; and see lapsed
	Tombs map[string]time.Time `json:",omitempty"`
	Ran   *Run                 `json:",omitempty"` // see backend.Claim.NotBefore
	// until when versions that know no Ran grant no job
	Mark  time.Time `json:",omitzero"`
	Saved []byte    // the state; nil if none was ever saved, and empty is a state

	// What the methods have changed, until the caller sets it to false: that others hold than
	// before, for observers, and that Signal has something to tell.
	NewHolders, NewSignals bool `json:"-"`

	slack time.Duration // what is added to every length of time that is written
}

// A Run is the last of a job that has ended and left its mark.
type Run struct {
	Token uint64 // the key's last when it ended
	Began time.Time
	Every time.Duration // its claim's NotBefore, with the slack
	Kept  time.Time     // until when it is kept
}

// mark is until when versions before grant no job after the run.
func (r *Run) mark() time.Time { return r.Began.Add(r.Every) }

// Capabilities are what the rules of a record give to a store whose clock is exact to a millisecond
// and whose clients hear of changes. It has no name.
var Capabilities = backend.Capabilities{
	Shared: true, Permit: true, Weight: true, Reentrant: true, State: true, NotBefore: true,
	Fencing: true, Queue: true, Watch: true, Inspect: true, Observe: true, MinToken: true,
	TookOver: true, MinTTL: time.Millisecond,
}

// late is how long an attempt may still land beyond twice its claim's lease. A lease that has run
// out is told of for as long: until then there is a tombstone under a name that no claim is given,
// which keeps the record.
const (
	late   = time.Minute
	lapsed = "\x00lapsed"
)

// Acquire grants c, or refuses it and with Queue gives it a place in the queue. All checks come
// before the first write, except that time passes first.
//
// Nobody overtakes: once the queue has advanced, whoever is first in it does not fit. So a claim
// that is queued is not to be granted here, and one that is not is granted only where nobody
// stands. The exception enters what its owner holds.
func (r *Record) Acquire(c backend.Claim, now time.Time) (backend.Grant, error) {
	if now.Before(r.Tombs[c.ID()]) { // safeguard: record-tombstone
		return backend.Grant{}, fmt.Errorf("%w: it was released before", backend.ErrLost)
	}
	r.expire(now)
	if len(r.Queue) > 0 {
		r.advance(now, c.ID())
	}
	if h := r.holdOf(c.ID()); h != nil { // a repeat, or the answer to a hand-off: the grant stands
		h.Expires, h.Handed = later(h.Expires, r.until(now, c.TTL)), nil
		return r.granted(c, h, c.TTL), nil
	}
	if c.NotBefore > 0 {
		if err := r.early(c, now); err != nil {
			return backend.Grant{}, err
		}
	}
	if c.Mode == backend.Permit {
		if err := r.mismatch(c); err != nil {
			return backend.Grant{}, err
		}
	}
	if len(r.Queue) == 0 && r.fits(c) {
		return r.grant(c, now, c.TTL), nil
	}
	if r.entered(c) != nil {
		r.leave(c.ID()) // safeguard: record-entered-leaves
		return r.grant(c, now, c.TTL), nil
	}
	if c.Queue {
		r.stand(c, now)
	}
	return backend.Grant{}, r.refusal(r.position(c.ID()), now)
}

// Heartbeat keeps the places of claims of the record's key, and says of each what Acquire would,
// but that it grants nothing to a claim that is not in the queue, or that enters past it as its
// owner holds: that is [backend.ErrLost].
func (r *Record) Heartbeat(claims []backend.Claim, now time.Time) []error {
	r.expire(now)
	r.advance(now, "")
	answers, byID := make([]error, len(claims)), make(map[string]int, len(claims))
	for i := range claims {
		byID[claims[i].ID()] = i
		answers[i] = backend.ErrLost
	}
	for n := range r.Queue {
		p := &r.Queue[n]
		if i, ours := byID[p.Claim.ID()]; ours {
			p.Until = later(p.Until, r.until(now, claims[i].WaiterTTL))
			if r.entered(p.Claim) == nil { // safeguard: record-owner-asks
				answers[i] = r.refusal(n+1, now)
			}
		}
	}
	return answers
}

// Renew extends a running lease of the same acquisition, and nothing else. A minimum raises the
// token of the whole ownership, and with it the key's, in the same step: the proof that c holds
// is the proof that nobody else was granted meanwhile. So it is with a state to be saved.
func (r *Record) Renew(c backend.Claim, now time.Time) error {
	r.expire(now)
	h := r.holdOf(c.ID())
	if h == nil {
		r.advance(now, "")
		return backend.ErrLost
	}
	h.Expires, h.Handed = later(h.Expires, r.until(now, c.TTL)), nil
	if c.MinToken > h.Token {
		r.raise(h, c.MinToken)
	}
	c.NotBefore = 0 // a release leaves it
	r.save(c, now)
	r.advance(now, "")
	return nil
}

// Release forgets c, in the queue or as a holder, and lets in whom that lets in. Unless none of c
// is in flight it leaves a tombstone, which an attempt of c that lands later runs into.
//
// Cancel and grant: c is in the queue, or holds, or neither, and this step ends each. A grant that
// was handed to c and not yet heard of is released like any other, which passes it on. c itself is
// not let in by its own leaving, as it goes first.
func (r *Record) Release(c backend.Claim, now time.Time) (told backend.Released, err error) {
	r.expire(now)
	held := r.end(&c, now)
	ended := held || r.leave(c.ID()) // whoever holds is in no queue
	if !held {
		err = backend.ErrLost
	} else if len(r.Queue) > 0 {
		// safeguard: record-waited
		told = backend.Released{Waiting: len(r.Queue), Next: r.Queue[0].Claim.Meta}
	}
	r.letIn(now, ended, c.Before)
	return told, err
}

// ReleaseAll is Release of claims of the record's key. All are gone before anybody is let in, so
// none of them is.
func (r *Record) ReleaseAll(claims []backend.Claim, now time.Time) []error {
	r.expire(now)
	answers, waits, ended := make([]error, len(claims)), make(map[string]bool, len(claims)), false
	var before []backend.Past
	for i := range claims {
		c := &claims[i]
		before = append(before, c.Before...)
		if r.end(c, now) {
			ended = true
		} else {
			answers[i], waits[c.ID()] = backend.ErrLost, true
		}
	}
	n := len(r.Queue)
	// safeguard: record-leave
	r.Queue = slices.DeleteFunc(r.Queue, func(p Place) bool { return waits[p.Claim.ID()] })
	r.letIn(now, ended || len(r.Queue) < n, before) // safeguard: record-left
	return answers
}

// end ends c's hold, whose state and mark it leaves, and reports whether there was one. Unless none
// of c is in flight there is a tombstone.
func (r *Record) end(c *backend.Claim, now time.Time) (held bool) {
	if !c.NoneInFlight {
		r.bury(c.ID(), r.until(now, 2*min(max(c.TTL, 0), backend.MaxTTL)+late))
	}
	if held = r.drop(c.ID()); held {
		r.NewHolders = true
		if c.Save != nil || c.NotBefore > 0 {
			r.save(*c, now) // before others are let in, whose grants carry it
		}
	}
	return held
}

// letIn lets in whoever is next, and has those told who wait without a place, if something has
// ended.
func (r *Record) letIn(now time.Time, ended bool, before []backend.Past) {
	if len(r.Queue) > 0 {
		r.advance(now, "", slices.Clone(before[max(0, len(before)-backend.MaxBefore):])...)
	}
	if ended && r.open() {
		r.NewSignals = true
	}
}

// Inspect returns what [backend.Backend.Inspect] does. It changes nothing: what has run out is left
// out, and whoever is to be let in still is queued.
func (r *Record) Inspect(now time.Time) backend.State {
	state := backend.State{Token: r.Token}
	for _, h := range r.Holds {
		if h.Expires.After(now) {
			state.Holders = append(state.Holders, backend.Holder{
				Owner: h.Owner, ID: h.ID, Mode: h.Mode, Token: h.Token, TTL: h.Expires.Sub(now),
				Meta:   h.Meta,
				Weight: h.Weight,
			})
		}
	}
	for _, p := range r.Queue {
		if p.Until.After(now) {
			c := &p.Claim
			w := backend.Waiter{Owner: c.Owner, Mode: c.Mode, Meta: c.Meta, Weight: c.Weight}
			state.Waiters = append(state.Waiters, w)
		}
	}
	return state
}

// Signal wakes those who wait for key in this process and whom the record has something for: the
// claims to which a hold was handed over, with its grant, and, if a claim that is not queued may be
// let in, those of such claims. What has run out must have been dropped ([Record.Trim]). A call too
// many does no harm.
func (r *Record) Signal(hub *waiting.Hub[backend.Wake], key string) {
	for i := range r.Holds {
		if h := &r.Holds[i]; h.Handed != nil {
			hub.Deliver(claimTopic(key, h.ID), backend.Wake{Granted: true, Grant: *h.Handed})
		}
	}
	if r.open() {
		hub.Wake(key, backend.Wake{})
	}
}

// Trim drops what is over by now: holds, places, tombstones and marks. It lets nobody in. It
// reports whether nothing but the last token is left.
func (r *Record) Trim(now time.Time) (empty bool) {
	r.expire(now)
	if len(r.Tombs) > 0 {
		maps.DeleteFunc(r.Tombs, func(_ string, until time.Time) bool { return !until.After(now) })
	}
	if !r.Mark.After(now) {
		r.Mark = time.Time{}
	}
	if r.Ran != nil && !r.Ran.Kept.After(now) {
		r.Ran = nil
	}
	return len(r.Holds)+len(r.Queue)+len(r.Tombs) == 0 && r.Mark.IsZero() && r.Ran == nil &&
		r.Saved == nil
}

// Passed reports whether the clock, by which it is now, has passed the record's last token. So a
// record of which nothing else is left may be deleted: the first token of a new one is above it.
func (r *Record) Passed(now time.Time) bool {
	clock := uint64(now.Add(-r.slack).UnixMicro()) //nolint:gosec // after 1970
	return r.Token < clock                         // safeguard: record-passed
}

// Over has the holds of the claims that gone names run out, and takes them out of the queue.
func (r *Record) Over(gone func(id string) bool) {
	r.lapse(func(h Hold) bool { return gone(h.ID) })
	r.Queue = slices.DeleteFunc(r.Queue, func(p Place) bool { return gone(p.Claim.ID()) })
}

// Lasting returns what outlives every hold: the last token, the state and the marks.
func (r *Record) Lasting() Record {
	// safeguard: record-lasting
	return Record{Token: r.Token, Saved: r.Saved, Ran: r.Ran, Mark: r.Mark}
}

// Weighted reports whether a claim of the record counts for more than one permit.
func (r *Record) Weighted() bool {
	return slices.ContainsFunc(r.Holds, func(h Hold) bool { return h.Weight > 1 }) ||
		slices.ContainsFunc(r.Queue, func(p Place) bool { return p.Claim.Weight > 1 })
}

// save stores what c leaves for later holders: its state and its mark, if it has them. The caller
// has seen in the same step that c holds, or held until now.
func (r *Record) save(c backend.Claim, now time.Time) {
	if c.Save != nil {
		r.Saved = slices.Clone(c.Save)
	}
	if c.NotBefore > 0 {
		run := &Run{
			r.Token, now.Add(-c.Ran), c.NotBefore + r.slack,
			r.until(now, backend.MarkLife(c.NotBefore)),
		}
		r.Ran, r.Mark = run, run.mark()
	}
}

// early refuses the claim of a job whose last run began too lately, or ended after the claim was
// refused first.
//
// Tokens rise with the grants of a key, and a run has the key's last when it ended. So if that is
// not below the last when the claim was refused, then who held at that time has run the job, or a
// later one has.
func (r *Record) early(c backend.Claim, now time.Time) error {
	run, left := r.Ran, r.Mark.Sub(now)
	// Unless a version that knows no Ran has left its mark.
	// safeguard: record-other-version
	if run != nil && (r.Mark.IsZero() || r.Mark.Equal(run.mark())) {
		left = run.Began.Add(c.NotBefore + r.slack).Sub(now) // safeguard: record-own-time
	}
	// safeguard: record-awaited
	if left > 0 || run != nil && c.Awaited > 0 && run.Token >= c.Awaited {
		return &backend.EarlyError{RetryAfter: max(left, 0)}
	}
	return nil
}

// Shift moves the marks, when the clock was set by d.
func (r *Record) Shift(d time.Duration) {
	if !r.Mark.IsZero() {
		r.Mark = r.Mark.Add(d)
	}
	if run := r.Ran; run != nil {
		r.Ran = &Run{run.Token, run.Began.Add(d), run.Every, run.Kept.Add(d)}
	}
}

// until is when what is to last for d from now ends, late enough for a client whose clock is ahead
// by the slack.
func (r *Record) until(now time.Time, d time.Duration) time.Time {
	return now.Add(d + r.slack) // safeguard: record-skew
}

// grant lets c in for lease. The caller has seen that it fits.
//
// Tokens rise in the order of grants, because grants of a key are made one at a time and each takes
// the next; a claim that reserves takes the following ones too. The clock in them keeps them rising
// over the end of the record.
func (r *Record) grant(c backend.Claim, now time.Time, lease time.Duration) backend.Grant {
	h := Hold{
		ID: c.ID(), Owner: c.Owner, Mode: c.Mode, Limit: c.Limit, Weight: c.Weight,
		Reentrant: c.Reentrant, Meta: c.Meta, TookOver: r.Lapsed,
	}
	h.Expires = r.until(now, lease)
	r.Lapsed = 0 // safeguard: record-took-over
	delete(r.Tombs, lapsed)
	var own *Hold
	if c.Reentrant {
		own = r.entered(c)
	}
	if own != nil {
		h.Token, h.Reserved = own.Token, own.Reserved // one ownership, however often it was entered
	} else {
		// safeguard: record-token
		h.Token, h.Reserved = max(r.Token+1, uint64(now.UnixMicro())), max(c.Reserve, 1)
		if c.MinToken > h.Token {
			h.Token = max(h.Token, min(c.MinToken, backend.MinTokenLimit(now, c.TTL)))
		}
		r.Token = h.Token + uint64(h.Reserved) - 1
	}
	r.Holds, r.NewHolders = append(r.Holds, h), true
	return r.granted(c, &h, lease)
}

// granted is what the claim of a hold is told in the step that grants it, or grants it again: with
// the state, if it asks for that.
func (r *Record) granted(c backend.Claim, h *Hold, lease time.Duration) backend.Grant {
	g := backend.Grant{Token: h.Token, TTL: lease, Reserved: h.Reserved, TookOver: h.TookOver}
	if c.Load {
		g.State = slices.Clone(r.Saved) // nil stays nil, and empty stays empty
	}
	return g
}

// raise gives a hold a higher token, and keeps what comes later above it.
func (r *Record) raise(h *Hold, token uint64) {
	for i := range r.Holds {
		// safeguard: record-owners-token
		if o := &r.Holds[i]; o == h || h.Reentrant && o.Reentrant && o.Owner == h.Owner {
			o.Token = token
		}
	}
	r.Token = max(r.Token, token+uint64(h.Reserved)-1)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
