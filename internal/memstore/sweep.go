package memstore

import "time"

// looks is how many entries of each map a sweep looks at. A verb adds one to each at most, so what
// is left behind by keys that nobody asks for again stays in proportion to what is alive.
const looks = 2

// sweep looks at random entries (the order of a map) and drops those whose time is over. The caller
// has mu.
func (s *Store) sweep(now time.Time) {
	looked := 0
	for key, l := range s.locks {
		l.expire(now) // whoever is let in by that is still to ask
		s.forget(key, l)
		if looked++; looked == looks {
			break
		}
	}
	looked = 0
	for key, until := range s.marks {
		if !until.After(now) {
			delete(s.marks, key)
		}
		if looked++; looked == looks {
			break
		}
	}
	looked = 0
	for t, until := range s.tombs {
		if !until.After(now) {
			delete(s.tombs, t)
		}
		if looked++; looked == looks {
			break
		}
	}
}

// forget drops a lock that nobody holds and nobody waits for. Its last token is below the next of
// any key.
func (s *Store) forget(key string, l *lock) {
	if len(l.holds) == 0 && len(l.line) == 0 {
		delete(s.locks, key)
	}
}
