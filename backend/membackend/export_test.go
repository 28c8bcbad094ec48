package membackend

// Drop forgets key's holds, line and tombstones, as a restart would.
func (b *Backend) Drop(key string) { b.store.Drop(key) }

// Held returns the keys with prefix that are held, or waited for.
func (b *Backend) Held(prefix string) (keys []string) { return b.store.Held(prefix) }
