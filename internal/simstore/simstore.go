// Package simstore keeps locks as the nodes of simulations do: records in memory (backend/record),
// by a clock that can be replaced, which no package outside of internal may offer.
package simstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/waiting"
)

// A Store has a record for each key that it was ever asked for. Every verb is one critical section
// of mu.
type Store struct {
	hub waiting.Hub[backend.Wake]
	cfg Config

	mu      sync.Mutex
	records map[string]*record.Record
	opens   time.Time // nothing is granted before
}

// A Config says what a store does not share with every other. The zero Config is a store by the
// clock of the process.
type Config struct {
	// Now is the store's clock. It may drift and jump, and is called with the store locked. Default
	// time.Now.
	Now func() time.Time

	// Quarantine is how long the store grants nothing, from now on by its clock, as a server does
	// that lost its memory: holds that it cannot know of must run out first.
	Quarantine time.Duration
}

// New returns an empty store.
func New(cfg Config) *Store {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{cfg: cfg, records: map[string]*record.Record{}}
	if cfg.Quarantine > 0 {
		s.opens = cfg.Now().Add(cfg.Quarantine)
	}
	return s
}

// Capabilities says what a store in memory can do soundly.
func (s *Store) Capabilities() backend.Capabilities { return record.Capabilities }

// Validate refuses what the store cannot keep.
func (s *Store) Validate(c backend.Claim) error { return c.Validate(record.Capabilities) }

// with has f look at key's record, or change it, and then wakes whom that concerns.
func (s *Store) with(key string, f func(r *record.Record, now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key]
	if r == nil {
		r = &record.Record{}
		s.records[key] = r
	}
	f(r, s.cfg.Now())
	if r.NewSignals {
		r.NewSignals = false
		r.Signal(&s.hub, key)
	}
}

// Acquire makes an attempt, unless the store is in quarantine.
func (s *Store) Acquire(c backend.Claim) (g backend.Grant, err error) {
	s.with(c.Key, func(r *record.Record, now time.Time) {
		if now.Before(s.opens) {
			err = &backend.QuarantineError{RetryAfter: s.opens.Sub(now), Why: "restarted"}
			return
		}
		g, err = r.Acquire(c, now)
	})
	return g, err
}

// Heartbeat keeps the places of claims.
func (s *Store) Heartbeat(claims []backend.Claim) []error {
	return s.together(claims, (*record.Record).Heartbeat)
}

// ReleaseAll forgets claims, those of one key in one step.
func (s *Store) ReleaseAll(claims []backend.Claim) []error {
	return s.together(claims, (*record.Record).ReleaseAll)
}

func (s *Store) together(claims []backend.Claim,
	verb func(*record.Record, []backend.Claim, time.Time) []error,
) []error {
	answers := make([]error, len(claims))
	backend.Together(claims, backend.ByKey(claims), answers,
		func(some []backend.Claim) (told []error, err error) {
			s.with(some[0].Key, func(r *record.Record, now time.Time) { told = verb(r, some, now) })
			return told, nil
		})
	return answers
}

// Renew extends a running lease of the same acquisition, and nothing else.
func (s *Store) Renew(c backend.Claim) (err error) {
	s.with(c.Key, func(r *record.Record, now time.Time) { err = r.Renew(c, now) })
	return err
}

// Release forgets c, in the queue or as a holder.
func (s *Store) Release(c backend.Claim) (told backend.Released, err error) {
	s.with(c.Key, func(r *record.Record, now time.Time) { told, err = r.Release(c, now) })
	return told, err
}

// Watch signals until ctx is done: for a claim in the queue what is made for it, for another one
// releases of the key.
func (s *Store) Watch(ctx context.Context, c backend.Claim) <-chan backend.Wake {
	return s.hub.Watch(ctx, record.Topic(c))
}

// Inspect looks and touches nothing.
func (s *Store) Inspect(key string) (state backend.State) {
	s.with(key, func(r *record.Record, now time.Time) { state = r.Inspect(now) })
	return state
}

// Saved returns the key's state, nil if none was ever saved.
func (s *Store) Saved(key string) (state []byte) {
	s.with(key, func(r *record.Record, _ time.Time) { state = slices.Clone(r.Saved) })
	return state
}

// Record returns what there is of key. It shares memory with the store, which is not to be used any
// more.
func (s *Store) Record(key string) (r record.Record) {
	s.with(key, func(there *record.Record, _ time.Time) { r = *there })
	return r
}

// Load puts a record into a store that has nothing of key yet.
func (s *Store) Load(key string, r record.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[key] = &r
}
