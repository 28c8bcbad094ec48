// Package counting has a memory count its tokens as etcd does (docs/adr/etcd.md), for simulations
// of a quorum: without a date, from the minimum that a claim asks for, and never forgetting.
package counting

import (
	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/simstore"
)

// A Store is a memory whose clock has no date, and which counts. Its methods must not be called
// concurrently.
type Store struct {
	*simstore.Store

	// removes the safeguard: it says the minimum that it was asked for, and does not keep it
	Deaf bool

	told map[string]bool // by Claim.ID: those that were granted and told
}

// Acquire raises the token of a fresh grant to the claim's minimum, and the counter with it. A
// repeat is told the token that it has.
func (s *Store) Acquire(c backend.Claim) (backend.Grant, error) {
	g, err := s.Store.Acquire(c)
	if err != nil || s.told[c.ID()] {
		return g, err
	}
	if s.told == nil {
		s.told = map[string]bool{}
	}
	s.told[c.ID()] = true
	if c.MinToken > g.Token {
		g.Token, err = c.MinToken, s.Renew(c)
	}
	return g, err
}

// Renew raises the token of the hold, too, if the claim has a minimum.
func (s *Store) Renew(c backend.Claim) error {
	if s.Deaf {
		c.MinToken = 0
	}
	return s.Store.Renew(c)
}
