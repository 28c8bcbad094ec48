package memstore

import (
	"slices"

	"github.com/holdfast-go/holdfast/backend"
)

// load returns the key's state, if c asks for it. The caller has mu, and grants c in the same
// critical section.
func (s *Store) load(c backend.Claim) []byte {
	if !c.Load {
		return nil
	}
	return slices.Clone(s.saved[c.Key]) // nil stays nil, and empty stays empty
}

// save stores c's state, if it has one. The caller has mu, and has seen in the same critical
// section that c holds.
func (s *Store) save(c backend.Claim) {
	if c.Save != nil {
		s.saved[c.Key] = slices.Clone(c.Save)
	}
}
