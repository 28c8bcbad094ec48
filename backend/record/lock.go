package record

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A Hold is one lease of an acquisition.
type Hold struct {
	ID, Owner string // Claim.ID and Claim.Owner
	Mode      backend.Mode
	Limit     int
	Weight    int `json:",omitempty"` // 0 is 1
	Reentrant bool
	Token     uint64
	Reserved  int // tokens from Token upward
	Expires   time.Time
	Meta      backend.Meta
	TookOver  uint64         `json:",omitempty"` // as in its grant
	Handed    *backend.Grant // the grant, if it was handed over and its claim has not asked since
}

// expire drops what has run out: the holds, and the places of those who sent no heartbeat.
func (r *Record) expire(now time.Time) {
	r.lapse(func(h Hold) bool { return !h.Expires.After(now) })
	r.Queue = slices.DeleteFunc(r.Queue, func(p Place) bool { return !p.Until.After(now) })
}

// lapse drops the holds that ended without a release. If one was exclusive, the next is told of it,
// for a minute beyond its lease at least.
func (r *Record) lapse(over func(h Hold) bool) {
	r.Holds = slices.DeleteFunc(r.Holds, func(h Hold) bool {
		ended := over(h)
		if ended && h.Mode == backend.Exclusive && !h.Reentrant {
			r.Lapsed = h.Token + uint64(h.Reserved) - 1
			r.bury(lapsed, h.Expires.Add(late)) // safeguard: record-lapsed
		}
		return ended
	})
}

// bury leaves a tombstone.
func (r *Record) bury(id string, until time.Time) {
	if r.Tombs == nil {
		r.Tombs = map[string]time.Time{}
	}
	r.Tombs[id] = until
}

// holdOf returns the hold of an acquisition, which may be changed, or nil.
func (r *Record) holdOf(id string) *Hold {
	for i := range r.Holds {
		if r.Holds[i].ID == id {
			return &r.Holds[i]
		}
	}
	return nil
}

// drop ends the hold of an acquisition and reports whether there was one.
func (r *Record) drop(id string) bool {
	n := len(r.Holds)
	// safeguard: record-owner
	r.Holds = slices.DeleteFunc(r.Holds, func(h Hold) bool { return h.ID == id })
	return len(r.Holds) < n
}

// entered returns a hold of c's re-entrant owner, or nil.
func (r *Record) entered(c backend.Claim) *Hold {
	for i := range r.Holds {
		if h := &r.Holds[i]; c.Reentrant && h.Reentrant && h.Owner == c.Owner {
			return h
		}
	}
	return nil
}

// fits reports whether c may hold beside those who hold now. As all of them are of one mode, the
// first tells which.
//
// Safety: at any moment the holds are one exclusive, or the holds of one re-entrant owner, or any
// number of shared ones, or permits of one limit whose weights add up to no more. It is so when
// there is none; fits lets nobody in who would change it; a hold keeps its weight; and it leaves
// only when it is released or has run out, so every lease that somebody may believe in is among
// them.
func (r *Record) fits(c backend.Claim) bool {
	if len(r.Holds) == 0 || r.entered(c) != nil {
		return true
	}
	switch {
	case c.Mode != r.Holds[0].Mode:
		return false
	case c.Mode == backend.Permit:
		return max(c.Weight, 1) <= c.Limit-r.weight() // a sum might be over what an int has
	}
	return c.Mode == backend.Shared
}

// weight is that of all who hold together.
func (r *Record) weight() (sum int) {
	for i := range r.Holds {
		sum += max(r.Holds[i].Weight, 1)
	}
	return sum
}

// mismatch is an error if the key is in use as a semaphore of another limit than c's, a permit's.
func (r *Record) mismatch(c backend.Claim) error {
	for _, h := range r.Holds {
		if h.Mode == backend.Permit && h.Limit != c.Limit {
			return &backend.MismatchError{InUse: h.Limit, Asked: c.Limit}
		}
	}
	for _, p := range r.Queue { // safeguard: record-queued-limit
		if p.Claim.Mode == backend.Permit && p.Claim.Limit != c.Limit {
			return &backend.MismatchError{InUse: p.Claim.Limit, Asked: c.Limit}
		}
	}
	return nil
}

// open reports whether a claim that is not queued may be let in.
func (r *Record) open() bool {
	if len(r.Queue) > 0 {
		return false
	}
	// safeguard: permit-freed
	room := len(r.Holds) > 0 && r.Holds[0].Mode == backend.Permit && r.weight() < r.Holds[0].Limit
	return len(r.Holds) == 0 || r.Holds[0].Mode == backend.Shared || room
}

// refusal is what a claim at this position in the queue is told; 0 is none. One that is behind
// others is not told when to ask: the first asks for all.
func (r *Record) refusal(position int, now time.Time) error {
	held := &backend.HeldError{Token: r.Token, Position: position, Holder: r.Holds[0].Meta}
	var soonest time.Time
	sooner := func(t time.Time) bool {
		if soonest.IsZero() || t.Before(soonest) {
			soonest = t
			return true
		}
		return false
	}
	for _, h := range r.Holds {
		if sooner(h.Expires) {
			held.Holder = h.Meta
		}
	}
	if held.Position == 0 {
		for _, p := range r.Queue {
			sooner(p.Until)
		}
	}
	if held.Position <= 1 {
		held.RetryAfter = soonest.Sub(now)
	}
	return held
}
