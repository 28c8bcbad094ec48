package memstore

import (
	"slices"
	"time"

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

// Saved returns the key's state, nil if none was ever saved.
func (s *Store) Saved(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.saved[key])
}

// save stores what c leaves for later holders: its state and its mark, if it has them. The caller
// has mu, and has seen in the same critical section that c holds, or held until now.
func (s *Store) save(c backend.Claim, now time.Time) {
	if c.Save != nil {
		s.saved[c.Key] = slices.Clone(c.Save)
	}
	if c.NotBefore > 0 {
		s.marks[c.Key] = now.Add(c.NotBefore)
	}
}
