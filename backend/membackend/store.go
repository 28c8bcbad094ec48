package membackend

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// store is the state that clients share. Every verb is one critical section of mu, which makes it atomic. Time passes in it
// only when a verb looks, as in a store on a server: whoever's verb comes next ends what has run out, and advances the line.
type store struct {
	hub waiting.Hub[backend.Wake]

	mu    sync.Mutex
	locks map[string]*lock        // by key; a key that is not there is free, and nobody waits
	tombs map[tombstone]time.Time // released claims whose attempts may still be on their way, and until when
	token uint64                  // the last token of any key, so that a key's state can be forgotten when it is free
}

// A tombstone refuses an acquisition, not an owner: a re-entrant owner comes again with another hold.
type tombstone struct{ key, id string }

// late is how long an attempt may still land beyond twice its claim's lease.
const late = time.Minute

func newStore() *store {
	return &store{locks: map[string]*lock{}, tombs: map[tombstone]time.Time{}}
}

// acquire grants c, or refuses it and with Queue gives it a place in line. All checks come before the first write, except
// that time passes first.
//
// Nobody overtakes: once the line has advanced, whoever is first in it does not fit. So a claim that stands in line is not
// to be granted here, and one that does not is granted only where nobody stands. The exception enters what its owner holds.
func (s *store) acquire(c backend.Claim) (backend.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.sweep(now)
	if now.Before(s.tombs[tombstone{c.Key, c.ID()}]) {
		return backend.Grant{}, fmt.Errorf("%w: it was released before", backend.ErrLost)
	}
	l := s.at(c.Key, now)
	s.advance(c.Key, l, now, c.ID())
	defer s.forget(c.Key, l)
	if h := l.holdOf(c.ID()); h != nil { // a repeat, or the answer to a hand-off: the grant before stands, with its token
		h.expires = later(h.expires, now.Add(c.TTL))
		return backend.Grant{Token: h.token, TTL: c.TTL, Reserved: h.reserved}, nil
	}
	if l.mismatch(c) {
		return backend.Grant{}, backend.ErrMismatch
	}
	if l.entered(c) != nil || len(l.line) == 0 && l.fits(c) {
		l.leave(c.ID())
		return s.grant(l, c, now, c.TTL), nil
	}
	if c.Queue {
		l.stand(c, now)
	}
	return backend.Grant{}, l.refusal(c, now)
}

// renew extends a running lease of the same acquisition, and nothing else.
func (s *store) renew(c backend.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l := s.at(c.Key, now)
	defer s.forget(c.Key, l)
	defer s.advance(c.Key, l, now, "")
	h := l.holdOf(c.ID())
	if h == nil {
		return backend.ErrLost
	}
	h.expires = later(h.expires, now.Add(c.TTL))
	return nil
}

// release forgets c, in the line or as a holder, lets in whom that lets in, and only then wakes: a waiter that was woken
// before would find the key held and sleep again. Unless c is settled it leaves a tombstone, which an attempt of c that
// lands later runs into.
//
// Cancel and grant: c is in line, or holds, or neither, and this step ends each. A grant that was handed to c and not yet
// heard of is released like any other, which passes it on. c itself is not let in by its own leaving, as it goes first.
func (s *store) release(c backend.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.sweep(now)
	if !c.Settled {
		s.tombs[tombstone{c.Key, c.ID()}] = now.Add(2*min(max(c.TTL, 0), backend.MaxTTL) + late)
	}
	l := s.at(c.Key, now)
	defer s.forget(c.Key, l)
	held, stood := l.drop(c.ID()), l.leave(c.ID())
	s.advance(c.Key, l, now, "")
	if (held || stood) && l.open() {
		s.hub.Wake(keyTopic(c.Key), backend.Wake{})
	}
	if !held {
		return backend.ErrLost
	}
	return nil
}

// inspect looks and touches nothing: what has run out is left out, and whoever is to be let in still stands in line.
func (s *store) inspect(key string) backend.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l := s.locks[key]
	if l == nil {
		return backend.State{}
	}
	return l.state(now)
}

// at returns key's lock as of now, without what has run out. The caller has mu, and ends with forget.
func (s *store) at(key string, now time.Time) *lock {
	l := s.locks[key]
	if l == nil {
		l = &lock{}
		s.locks[key] = l
	}
	l.expire(now)
	return l
}

// grant lets c in for lease. The caller has seen that it fits.
//
// Tokens rise in the order of grants, over all keys, because grants are made one at a time under mu and each takes the next;
// a claim that reserves takes the following ones too. The clock in them keeps them rising over the end of the store.
func (s *store) grant(l *lock, c backend.Claim, now time.Time, lease time.Duration) backend.Grant {
	h := hold{
		id: c.ID(), owner: c.Owner, mode: c.Mode, limit: c.Limit, reentrant: c.Reentrant,
		expires: now.Add(lease), meta: c.Meta,
	}
	if own := l.entered(c); own != nil {
		h.token, h.reserved = own.token, own.reserved // one ownership, however often it was entered
	} else {
		h.token, h.reserved = max(s.token+1, uint64(now.UnixMicro())), max(c.Reserve, 1)
		s.token = h.token + uint64(h.reserved) - 1
		l.token = s.token
	}
	l.holds = append(l.holds, h)
	return backend.Grant{Token: h.token, TTL: lease, Reserved: h.reserved}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
