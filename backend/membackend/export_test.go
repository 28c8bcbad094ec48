package membackend

import "strings"

// Drop forgets key's holds, line and tombstones, as a restart would.
func (b *Backend) Drop(key string) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	delete(b.store.locks, key)
	for t := range b.store.tombs {
		if t.key == key {
			delete(b.store.tombs, t)
		}
	}
}

// Held returns the keys with prefix that are held, or waited for.
func (b *Backend) Held(prefix string) (keys []string) {
	b.store.mu.Lock()
	var all []string
	for key := range b.store.locks {
		all = append(all, key)
	}
	b.store.mu.Unlock()
	for _, key := range all {
		if s := b.store.inspect(key); strings.HasPrefix(key, prefix) && len(s.Holders)+len(s.Waiters) > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// Size returns how much the store remembers.
func (b *Backend) Size() (locks, tombs, watched int) {
	watched = len(b.store.hub.Topics())
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	return len(b.store.locks), len(b.store.tombs), watched
}
