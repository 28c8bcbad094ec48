package generations

import (
	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

var othersLock = scenario{
	title: "SET with EX and NX, and DEL at the end",
	fails: "A has deleted B's lock, and C works beside B",
	holds: "a release names its owner: A is told that it has lost the lock, and B keeps it",
	old: func(s *scene) {
		rdb := s.redis(resource)
		s.setNX("A", rdb, "OK", lockValue)
		s.pass(rdb, "100s", resource)
		s.setNX("B", rdb, "OK", lockValue)
		s.did("A", "has finished, and releases", "")
		s.command("A", rdb, "1", "DEL", resource)
		s.setNX("C", rdb, "OK", lockValue)
		s.did("B", "is still at work, and so is C", "")
	},
	holdfast: func(s *scene) { s.lateRelease(func(*party, *guard) {}) },
}

var checkThenDelete = scenario{
	title: "SET with a random value, which is checked before DEL",
	fails: "to check and to delete are two steps, and the lock was another's between them",
	holds: "the store checks and deletes in one step, whatever A has seen before",
	old: func(s *scene) {
		rdb := s.redis(resource)
		const mine, theirs = "uni_request_id_A", "uni_request_id_B"
		s.setNX("A", rdb, "OK", mine)
		s.command("A", rdb, mine, "GET", resource)
		s.did("A", "it is its own, so it will delete it", "")
		s.pass(rdb, "100s", resource)
		s.setNX("B", rdb, "OK", theirs)
		s.command("A", rdb, "1", "DEL", resource)
		s.setNX("C", rdb, "OK", "uni_request_id_C")
		s.did("B", "is still at work, and so is C", "")
	},
	holdfast: func(s *scene) { s.lateRelease(func(a *party, g *guard) { a.holds(g) }) },
}

// lateRelease has A stop while it holds, and release when B holds.
func (s *scene) lateRelease(before func(a *party, g *guard)) {
	a, b, c := s.party("A", s.url), s.party("B", s.url), s.party("C", s.url)
	g := a.tries(resource)
	before(a, g)
	a.crashes("is cut off from Redis for longer than its TTL")
	next := b.waits(resource)
	a.has(g, locker.ErrLost)
	a.resumes("reaches Redis again, and releases")
	a.unlocks(g, locker.ErrLost)
	c.refused(resource, backend.ErrHeld)
	b.holds(next)
	s.rises(g, next)
	b.unlocks(next, nil)
}
