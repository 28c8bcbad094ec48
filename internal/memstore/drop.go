package memstore

import "strings"

// Drop forgets key's holds, line, state and tombstones, as a restart would.
func (s *Store) Drop(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.locks, key)
	delete(s.saved, key)
	for t := range s.tombs {
		if t.key == key {
			delete(s.tombs, t)
		}
	}
}

// Held returns the keys with prefix that are held, or waited for.
func (s *Store) Held(prefix string) (keys []string) {
	s.mu.Lock()
	var all []string
	for key := range s.locks {
		all = append(all, key)
	}
	s.mu.Unlock()
	for _, key := range all {
		state := s.Inspect(key)
		if strings.HasPrefix(key, prefix) && len(state.Holders)+len(state.Waiters) > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}
