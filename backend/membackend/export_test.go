package membackend

// Drop forgets key's holds, queue and tombstones, as a restart would.
func (b *Backend) Drop(key string) {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[key]; r != nil {
		s.forget(key, r)
	}
	s.changes.Wake(key, struct{}{})
}

// Held returns the keys with prefix that are held, or waited for.
func (b *Backend) Held(prefix string) (keys []string) {
	for _, l := range b.store.list(prefix) {
		keys = append(keys, l.Key)
	}
	return keys
}
