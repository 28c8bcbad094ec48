package membackend

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// store is the state that clients share. Every verb is one critical section of mu, which makes it atomic.
type store struct {
	hub waiting.Hub[backend.Wake]

	mu    sync.Mutex
	holds map[string]hold         // by key; may have run out
	tombs map[tombstone]time.Time // released claims whose attempts may still be on their way, and until when
	token uint64                  // the last token of any key, so that a key's state can be forgotten when it is free
}

type hold struct {
	owner   string
	token   uint64
	expires time.Time
	meta    backend.Meta
}

type tombstone struct{ key, owner string }

// late is how long an attempt may still land beyond twice its claim's lease.
const late = time.Minute

func newStore() *store {
	return &store{holds: map[string]hold{}, tombs: map[tombstone]time.Time{}}
}

// acquire grants c unless another claim's lease is running. Safety: owner, token and expiry change together under mu, and
// only when the lease before has run out or was released, so leases of two owners never overlap.
func (s *store) acquire(c backend.Claim) (backend.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.sweep(now)
	if now.Before(s.tombs[tombstone{c.Key, c.Owner}]) {
		return backend.Grant{}, fmt.Errorf("%w: it was released before", backend.ErrLost)
	}
	h, held := s.live(c.Key, now)
	switch {
	case held && h.owner != c.Owner:
		return backend.Grant{}, &backend.HeldError{RetryAfter: h.expires.Sub(now), Holder: h.meta}
	case held: // a repeat: the grant before stands, with its token
		h.expires = later(h.expires, now.Add(c.TTL))
	default:
		s.token = max(s.token+1, uint64(now.UnixMicro()))
		h = hold{owner: c.Owner, token: s.token, expires: now.Add(c.TTL), meta: c.Meta}
	}
	s.holds[c.Key] = h
	return backend.Grant{Token: h.token, TTL: c.TTL}, nil
}

// renew extends a running lease of the same owner, and nothing else.
func (s *store) renew(c backend.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	h, held := s.live(c.Key, now)
	if !held || h.owner != c.Owner {
		return backend.ErrLost
	}
	h.expires = later(h.expires, now.Add(c.TTL))
	s.holds[c.Key] = h
	return nil
}

// release deletes c's hold, then wakes: a waiter that was woken before would find the lock still held and sleep again.
// Unless c is settled it leaves a tombstone, which an attempt of c that lands later runs into.
func (s *store) release(c backend.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !c.Settled {
		s.tombs[tombstone{c.Key, c.Owner}] = now.Add(2*c.TTL + late)
	}
	h, held := s.live(c.Key, now)
	if !held || h.owner != c.Owner {
		return backend.ErrLost
	}
	delete(s.holds, c.Key)
	s.hub.Wake(c.Key, backend.Wake{})
	return nil
}

func (s *store) inspect(key string) backend.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	h, held := s.live(key, now)
	if !held {
		return backend.State{}
	}
	return backend.State{Token: h.token, Holders: []backend.Holder{{
		Owner: h.owner, Token: h.token, TTL: h.expires.Sub(now), Meta: h.meta,
	}}}
}

// live returns key's hold if its lease is running, and forgets one that has run out. The caller has mu.
func (s *store) live(key string, now time.Time) (hold, bool) {
	h, ok := s.holds[key]
	if ok && !h.expires.After(now) {
		delete(s.holds, key)
		return hold{}, false
	}
	return h, ok
}

// sweep looks at two random entries of each map and drops those whose time is over. An acquisition adds one at most, so
// what is left behind by keys that nobody asks for again stays in proportion to what is alive. The caller has mu.
func (s *store) sweep(now time.Time) {
	looked := 0
	for key, h := range s.holds {
		if !h.expires.After(now) {
			delete(s.holds, key)
		}
		if looked++; looked == 2 {
			break
		}
	}
	looked = 0
	for t, until := range s.tombs {
		if !until.After(now) {
			delete(s.tombs, t)
		}
		if looked++; looked == 2 {
			break
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
