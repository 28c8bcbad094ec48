package membackend

import "strings"

// Drop forgets key's hold and tombstones, as a restart would.
func (b *Backend) Drop(key string) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	delete(b.store.holds, key)
	for t := range b.store.tombs {
		if t.key == key {
			delete(b.store.tombs, t)
		}
	}
}

// Held returns the keys with prefix that are held.
func (b *Backend) Held(prefix string) (keys []string) {
	for key := range b.store.holds {
		if strings.HasPrefix(key, prefix) && len(b.store.inspect(key).Holders) > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// Size returns how much the store remembers.
func (b *Backend) Size() (holds, tombs, watched int) {
	watched = len(b.store.hub.Topics())
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	return len(b.store.holds), len(b.store.tombs), watched
}
