package memstore

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A Place is where a claim stands in line. It ends at Until, unless its claim asks again.
type Place struct {
	Claim backend.Claim
	Until time.Time
}

// stand gives c the last place in line, or keeps the place it has for its WaiterTTL from now.
func (l *lock) stand(c backend.Claim, now time.Time) {
	until := now.Add(c.WaiterTTL)
	if i := l.position(c.ID()) - 1; i >= 0 {
		l.line[i].Until = later(l.line[i].Until, until)
		l.line[i].Claim.Meta = c.Meta
		return
	}
	c.Save, c.Before = nil, nil // nothing of the caller's is kept
	l.line = append(l.line, Place{Claim: c, Until: until})
}

// position is a claim's place in line, from 1, or 0.
func (l *lock) position(id string) int {
	return 1 + slices.IndexFunc(l.line, func(p Place) bool { return p.Claim.ID() == id })
}

// leave takes a claim out of the line and reports whether it was in it.
func (l *lock) leave(id string) bool {
	n := len(l.line)
	l.line = slices.DeleteFunc(l.line, func(p Place) bool { return p.Claim.ID() == id })
	return len(l.line) < n
}

// advance lets in the first in line, and the next, as long as they fit: readers together, a writer
// alone. It stops at the first who does not fit, even if one behind would: else a stream of readers
// would starve a writer. Afterwards nobody is in line, or its head does not fit.
//
// Whoever is let in holds from now on, in the same step that made room, so nobody can come in
// between. It holds for its WaiterTTL only, within which a waiter that lives asks, and that makes
// it a TTL. One that died costs the others a WaiterTTL.
//
// Its wake goes to that claim alone, unless it is the asker, which has its answer. The wake may be
// believed, if its token is above that of the claim's last refusal: the refusal gave the key's last
// token, and tokens rise with grants, so the grant was made after the refused attempt was executed,
// and that after it was sent.
func (s *Store) advance(key string, l *lock, now time.Time, asker string, before ...backend.Past) {
	for len(l.line) > 0 && l.fits(l.line[0].Claim) {
		c := l.line[0].Claim
		l.line = slices.Delete(l.line, 0, 1)
		g := s.grant(l, c, now, min(c.WaiterTTL, c.TTL))
		if c.ID() != asker {
			g.Before = before
			l.holdOf(c.ID()).Handed = &g
			s.hub.Deliver(claimTopic(key, c.ID()), backend.Wake{Granted: true, Grant: g})
		}
	}
}

// topic is what c's watcher listens to: a claim in line to what is made for it, another one to
// releases of the key.
func topic(c backend.Claim) string {
	if c.Queue {
		return claimTopic(c.Key, c.ID())
	}
	return keyTopic(c.Key)
}

// Topics of the two kinds never meet: a key is of UTF-8, which has no byte 0xff.
func keyTopic(key string) string       { return key }
func claimTopic(key, id string) string { return key + "\xff" + id }
