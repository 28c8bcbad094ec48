package record

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A Place is where a claim is queued. It ends at Until, unless its claim asks again.
type Place struct {
	Claim backend.Claim // without what a caller keeps: Save and Before
	Until time.Time
}

// stand gives c the last place in the queue, or keeps the place it has for its WaiterTTL from now.
func (r *Record) stand(c backend.Claim, now time.Time) {
	until := r.until(now, c.WaiterTTL)
	if i := r.position(c.ID()) - 1; i >= 0 {
		r.Queue[i].Until = later(r.Queue[i].Until, until)
		r.Queue[i].Claim.Meta = c.Meta
		return
	}
	c.Save, c.Before = nil, nil // nothing of the caller's is kept
	r.Queue = append(r.Queue, Place{Claim: c, Until: until})
}

// position is a claim's place in the queue, from 1, or 0.
func (r *Record) position(id string) int {
	return 1 + slices.IndexFunc(r.Queue, func(p Place) bool { return p.Claim.ID() == id })
}

// leave takes a claim out of the queue and reports whether it was in it.
func (r *Record) leave(id string) bool {
	n := len(r.Queue)
	r.Queue = slices.DeleteFunc(r.Queue, func(p Place) bool { return p.Claim.ID() == id })
	return len(r.Queue) < n
}

// advance lets in the first in the queue, and the next, as long as they fit: readers together, a
// writer alone. It stops at the first who does not fit, even if one behind would: else a stream of
// readers would starve a writer. Afterwards nobody is in the queue, or its head does not fit.
//
// Whoever is let in holds from now on, in the same step that made room, so nobody can come in
// between. It holds for its WaiterTTL only, within which a waiter that lives asks, and that makes
// it a TTL. One that died costs the others a WaiterTTL.
//
// Its wake goes to that claim alone, unless it is the asker, which has its answer. The wake may be
// believed, if its token is above that of the claim's last refusal: the refusal gave the key's last
// token, and tokens rise with grants, so the grant was made after the refused attempt was executed,
// and that after it was sent.
func (r *Record) advance(now time.Time, asker string, before ...backend.Past) {
	for len(r.Queue) > 0 && r.fits(r.Queue[0].Claim) {
		c := r.Queue[0].Claim
		r.Queue = slices.Delete(r.Queue, 0, 1)
		g := r.grant(c, now, min(c.WaiterTTL, c.TTL))
		if c.ID() != asker {
			g.Before = before
			r.holdOf(c.ID()).Handed = &g
			r.NewSignals = true
		}
	}
}

// Topic is what the watcher of a claim is to listen to in the hub of [Record.Signal]: a claim in
// the queue to what is handed to it, another one to what may let it in.
func Topic(c backend.Claim) string {
	if c.Queue {
		return claimTopic(c.Key, c.ID())
	}
	return c.Key
}

// Topics of the two kinds never meet: a key is of UTF-8, which has no byte 0xff.
func claimTopic(key, id string) string { return key + "\xff" + id }
