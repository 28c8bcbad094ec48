// Package memstore keeps locks in memory: the store behind mem://, and that of every simulated
// node. Its clock can be replaced, which no package outside of internal may offer.
package memstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// A Store is the state that clients share. Every verb is one critical section of mu, which makes it
// atomic. Time passes in it only when a verb looks, as in a store on a server: whoever's verb comes
// next ends what has run out, and advances the line.
type Store struct {
	hub waiting.Hub[backend.Wake]
	id  string           // of this memory: another store has another, also after a restart
	now func() time.Time // called with mu

	mu    sync.Mutex
	locks map[string]*lock        // by key; a key that is not there is free, and nobody waits
	saved map[string][]byte       // by key: the state that was last saved; it outlives the lock
	marks map[string]time.Time    // by key: claims that heed it are granted from then on
	tombs map[tombstone]time.Time // released claims whose attempts may be in flight, and until when
	opens time.Time               // nothing is granted before
	grace time.Duration           // Config.Quarantine
	token uint64                  // the last of any key, so that a key can be forgotten when it is free
}

// A tombstone refuses an acquisition, not an owner: a re-entrant owner comes again with another
// hold.
type tombstone struct{ key, id string }

// late is how long an attempt may still land beyond twice its claim's lease.
const late = time.Minute

// A Config says what a store does not share with every other. The zero Config is a store by the
// clock of the process.
type Config struct {
	// Now is the store's clock. It may drift and jump, and is called with the store locked. Default
	// time.Now.
	Now func() time.Time

	// Quarantine is how long the store grants nothing, from now on by its clock, as a server does
	// that lost its memory: holds that it cannot know of must run out first. A claim with a longer
	// TTL is an *[backend.InvalidError], because its hold would outlast the quarantine of a store
	// that follows this one.
	Quarantine time.Duration
}

// New returns an empty store.
func New(cfg Config) *Store {
	s := &Store{
		id: backend.NewOwner(), now: cfg.Now, grace: cfg.Quarantine,
		locks: map[string]*lock{}, saved: map[string][]byte{}, marks: map[string]time.Time{}, tombs: map[tombstone]time.Time{},
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.grace > 0 {
		s.opens = s.now().Add(s.grace)
	}
	return s
}

// Capabilities says what a store in memory can do soundly.
func (s *Store) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Shared: true, Permit: true, Weight: true, Reentrant: true, State: true, NotBefore: true,
		Fencing: true, Queue: true, Watch: true, Inspect: true, MinToken: true, MinTTL: time.Millisecond,
	}
}

// ID names this memory: another store has another, also if it follows this one.
func (s *Store) ID() string { return s.id }

// Validate refuses what the store cannot keep.
func (s *Store) Validate(c backend.Claim) error {
	if err := c.Validate(s.Capabilities()); err != nil {
		return err
	}
	if s.grace > 0 && c.TTL > s.grace {
		reason := "is over the store's quarantine of " + s.grace.String()
		return &backend.InvalidError{Field: "ttl", Value: c.TTL.String(), Reason: reason}
	}
	return nil
}

// Watch signals until ctx is done: for a claim in line what is made for it, for another one
// releases of the key.
func (s *Store) Watch(ctx context.Context, c backend.Claim) <-chan backend.Wake {
	return s.hub.Watch(ctx, topic(c))
}

// Acquire grants c, or refuses it and with Queue gives it a place in line. All checks come before
// the first write, except that time passes first.
//
// Nobody overtakes: once the line has advanced, whoever is first in it does not fit. So a claim
// that stands in line is not to be granted here, and one that does not is granted only where nobody
// stands. The exception enters what its owner holds.
func (s *Store) Acquire(c backend.Claim) (backend.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acquire(c)
}

func (s *Store) acquire(c backend.Claim) (backend.Grant, error) {
	now := s.now()
	s.sweep(now)
	if now.Before(s.tombs[tombstone{c.Key, c.ID()}]) {
		return backend.Grant{}, fmt.Errorf("%w: it was released before", backend.ErrLost)
	}
	if err := s.quarantined(now); err != nil {
		return backend.Grant{}, err
	}
	l := s.at(c.Key, now)
	s.advance(c.Key, l, now, c.ID())
	defer s.forget(c.Key, l)
	if h := l.holdOf(c.ID()); h != nil { // a repeat, or the answer to a hand-off: the grant stands
		h.Expires, h.Handed = later(h.Expires, now.Add(c.TTL)), nil
		return backend.Grant{Token: h.Token, TTL: c.TTL, Reserved: h.Reserved, State: s.load(c)}, nil
	}
	if until := s.marks[c.Key]; c.NotBefore > 0 && now.Before(until) {
		return backend.Grant{}, &backend.EarlyError{RetryAfter: until.Sub(now)}
	}
	if err := l.mismatch(c); err != nil {
		return backend.Grant{}, err
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

// quarantined refuses every grant until the holds that an earlier memory may have had are over.
// There is nothing in this one before, so there is nothing to repeat or to hand over either.
func (s *Store) quarantined(now time.Time) error {
	if !now.Before(s.opens) {
		return nil
	}
	return &backend.QuarantineError{RetryAfter: s.opens.Sub(now), Why: "restarted"}
}

// Heartbeat keeps the places of claims, and says of each what Acquire would, but that it grants
// nothing to a claim that is not in the queue: that is [backend.ErrLost].
func (s *Store) Heartbeat(claims []backend.Claim) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	answers := make([]error, len(claims))
	for _, group := range backend.ByKey(claims) {
		s.heartbeat(claims, group, answers, now)
	}
	return answers
}

// heartbeat is Heartbeat for those of one key. The caller has mu.
func (s *Store) heartbeat(claims []backend.Claim, group []int, answers []error, now time.Time) {
	key := claims[group[0]].Key
	l := s.at(key, now)
	defer s.forget(key, l)
	s.advance(key, l, now, "")
	byID := make(map[string]int, len(group))
	for _, i := range group {
		byID[claims[i].ID()] = i
		answers[i] = backend.ErrLost
	}
	for n := range l.line {
		p := &l.line[n]
		if i, ours := byID[p.Claim.ID()]; ours {
			p.Until = later(p.Until, now.Add(claims[i].WaiterTTL))
			answers[i] = l.refused(n+1, now)
		}
	}
}

// Renew extends a running lease of the same acquisition, and nothing else. A minimum raises the
// token of the whole ownership, and with it the store's, in the same step: the proof that c holds
// is the proof that nobody else was granted meanwhile. So it is with a state to be saved.
func (s *Store) Renew(c backend.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	l := s.at(c.Key, now)
	defer s.forget(c.Key, l)
	defer s.advance(c.Key, l, now, "")
	h := l.holdOf(c.ID())
	if h == nil {
		return backend.ErrLost
	}
	h.Expires, h.Handed = later(h.Expires, now.Add(c.TTL)), nil
	if c.MinToken > h.Token {
		s.raise(l, h, c.MinToken)
	}
	c.NotBefore = 0 // a release leaves it
	s.save(c, now)
	return nil
}

// raise gives a hold a higher token, and keeps what comes later above it.
func (s *Store) raise(l *lock, h *Hold, token uint64) {
	for i := range l.holds {
		if o := &l.holds[i]; o == h || h.Reentrant && o.Reentrant && o.Owner == h.Owner {
			o.Token = token
		}
	}
	l.token = max(l.token, token+uint64(h.Reserved)-1)
	s.token = max(s.token, l.token)
}

// Release forgets c, in the line or as a holder, lets in whom that lets in, and only then wakes: a
// waiter that was woken before would find the key held and sleep again. Unless none of c is in
// flight it leaves a tombstone, which an attempt of c that lands later runs into.
//
// Cancel and grant: c is in line, or holds, or neither, and this step ends each. A grant that was
// handed to c and not yet heard of is released like any other, which passes it on. c itself is not
// let in by its own leaving, as it goes first.
func (s *Store) Release(c backend.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.release(c)
}

func (s *Store) release(c backend.Claim) error {
	now := s.now()
	s.sweep(now)
	if !c.NoneInFlight {
		s.tombs[tombstone{c.Key, c.ID()}] = now.Add(2*min(max(c.TTL, 0), backend.MaxTTL) + late)
	}
	l := s.at(c.Key, now)
	defer s.forget(c.Key, l)
	held, stood := l.drop(c.ID()), l.leave(c.ID())
	if held {
		s.save(c, now) // before others are let in, whose grants carry it
	}
	s.advance(c.Key, l, now, "", slices.Clone(c.Before[max(0, len(c.Before)-backend.MaxBefore):])...)
	if (held || stood) && l.open() {
		s.hub.Wake(keyTopic(c.Key), backend.Wake{})
	}
	if !held {
		return backend.ErrLost
	}
	return nil
}

// Inspect looks and touches nothing: what has run out is left out, and whoever is to be let in
// still stands in line.
func (s *Store) Inspect(key string) backend.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	l := s.locks[key]
	if l == nil {
		return backend.State{}
	}
	return l.state(now)
}

// List returns the locks whose keys begin with prefix and that somebody holds or waits for.
func (s *Store) List(prefix string) (all []backend.Listed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for key, l := range s.locks {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if state := l.state(now); state.Holders != nil || state.Waiters != nil {
			all = append(all, backend.Listed{Key: key, State: state})
		}
	}
	return all
}

// at returns key's lock as of now, without what has run out. The caller has mu, and ends with
// forget.
func (s *Store) at(key string, now time.Time) *lock {
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
// Tokens rise in the order of grants, over all keys, because grants are made one at a time under mu
// and each takes the next; a claim that reserves takes the following ones too. The clock in them
// keeps them rising over the end of the store.
func (s *Store) grant(l *lock, c backend.Claim, now time.Time, lease time.Duration) backend.Grant {
	h := Hold{
		ID: c.ID(), Owner: c.Owner, Mode: c.Mode, Limit: c.Limit, Weight: c.Weight,
		Reentrant: c.Reentrant, Expires: now.Add(lease), Meta: c.Meta,
	}
	if own := l.entered(c); own != nil {
		h.Token, h.Reserved = own.Token, own.Reserved // one ownership, however often it was entered
	} else {
		least := min(c.MinToken, backend.MinTokenLimit(now, c.TTL))
		h.Token, h.Reserved = max(s.token+1, uint64(now.UnixMicro()), least), max(c.Reserve, 1)
		s.token = h.Token + uint64(h.Reserved) - 1
		l.token = s.token
	}
	l.holds = append(l.holds, h)
	return backend.Grant{Token: h.Token, TTL: lease, Reserved: h.Reserved, State: s.load(c)}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
