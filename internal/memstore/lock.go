package memstore

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A lock is what the store has of one key.
//
// Capacity: at any moment the holds are one exclusive, or the holds of one re-entrant owner, or any
// number of shared ones, or permits of one limit whose weights add up to no more. It is so when
// there is none; fits lets nobody in who would change it; a hold keeps its weight; and it leaves
// only when it is released or has run out, so every lease that somebody may believe in is among
// them.
type lock struct {
	holds []Hold  // in order of grant; those that have run out are dropped by expire
	line  []Place // first come, first
	token uint64  // the last token granted
}

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
	Handed    *backend.Grant // the grant, if it was handed over and its claim has not asked since
}

// expire drops what has run out: the holds, and the places of those who sent no heartbeat.
func (l *lock) expire(now time.Time) {
	l.holds = slices.DeleteFunc(l.holds, func(h Hold) bool { return !h.Expires.After(now) })
	l.line = slices.DeleteFunc(l.line, func(p Place) bool { return !p.Until.After(now) })
}

// holdOf returns the hold of an acquisition, which may be changed, or nil.
func (l *lock) holdOf(id string) *Hold {
	for i := range l.holds {
		if l.holds[i].ID == id {
			return &l.holds[i]
		}
	}
	return nil
}

// drop ends the hold of an acquisition and reports whether there was one.
func (l *lock) drop(id string) bool {
	n := len(l.holds)
	l.holds = slices.DeleteFunc(l.holds, func(h Hold) bool { return h.ID == id })
	return len(l.holds) < n
}

// entered returns a hold of c's re-entrant owner, or nil.
func (l *lock) entered(c backend.Claim) *Hold {
	for i := range l.holds {
		if h := &l.holds[i]; c.Reentrant && h.Reentrant && h.Owner == c.Owner {
			return h
		}
	}
	return nil
}

// fits reports whether c may hold beside those who hold now. As all of them are of one mode, the
// first tells which.
func (l *lock) fits(c backend.Claim) bool {
	if len(l.holds) == 0 || l.entered(c) != nil {
		return true
	}
	switch {
	case c.Mode != l.holds[0].Mode:
		return false
	case c.Mode == backend.Permit:
		return max(c.Weight, 1) <= c.Limit-l.weight() // a sum might be over what an int has
	}
	return c.Mode == backend.Shared
}

// weight is that of all who hold together.
func (l *lock) weight() (sum int) {
	for i := range l.holds {
		sum += max(l.holds[i].Weight, 1)
	}
	return sum
}

// mismatch is an error if the key is in use as a semaphore of another limit than c's.
func (l *lock) mismatch(c backend.Claim) error {
	if c.Mode != backend.Permit {
		return nil
	}
	for _, h := range l.holds {
		if h.Mode == backend.Permit && h.Limit != c.Limit {
			return &backend.MismatchError{InUse: h.Limit, Asked: c.Limit}
		}
	}
	for _, p := range l.line {
		if p.Claim.Mode == backend.Permit && p.Claim.Limit != c.Limit {
			return &backend.MismatchError{InUse: p.Claim.Limit, Asked: c.Limit}
		}
	}
	return nil
}

// open reports whether a claim that does not stand in line may be let in.
func (l *lock) open() bool {
	if len(l.line) > 0 {
		return false
	}
	return len(l.holds) == 0 || l.holds[0].Mode == backend.Shared ||
		l.holds[0].Mode == backend.Permit && l.weight() < l.holds[0].Limit
}

// refusal is what c is told. Who is behind others in line is not told when to ask: the first in
// line asks for all.
func (l *lock) refusal(c backend.Claim, now time.Time) error {
	return l.refused(l.position(c.ID()), now)
}

// refused is refusal for a claim whose position is known; 0 is none.
func (l *lock) refused(position int, now time.Time) error {
	held := &backend.HeldError{Token: l.token, Position: position, Holder: l.holds[0].Meta}
	var soonest time.Time
	sooner := func(t time.Time) bool {
		if soonest.IsZero() || t.Before(soonest) {
			soonest = t
			return true
		}
		return false
	}
	for _, h := range l.holds {
		if sooner(h.Expires) {
			held.Holder = h.Meta
		}
	}
	if held.Position == 0 {
		for _, p := range l.line {
			sooner(p.Until)
		}
	}
	if held.Position <= 1 {
		held.RetryAfter = soonest.Sub(now)
	}
	return held
}

// state is what Inspect shows of the lock.
func (l *lock) state(now time.Time) backend.State {
	state := backend.State{Token: l.token}
	for _, h := range l.holds {
		if h.Expires.After(now) {
			state.Holders = append(state.Holders, backend.Holder{
				Owner: h.Owner, ID: h.ID, Mode: h.Mode, Token: h.Token, TTL: h.Expires.Sub(now), Meta: h.Meta,
				Weight: h.Weight,
			})
		}
	}
	for _, p := range l.line {
		if p.Until.After(now) {
			c := &p.Claim
			w := backend.Waiter{Owner: c.Owner, Mode: c.Mode, Meta: c.Meta, Weight: c.Weight}
			state.Waiters = append(state.Waiters, w)
		}
	}
	return state
}
