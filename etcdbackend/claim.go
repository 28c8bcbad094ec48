package etcdbackend

import (
	"context"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// orphanTime is for how much longer than its claim's belief an entry is looked for whose Put was
// not answered.
const orphanTime = time.Minute

// A localClaim is what this client knows of a claim of its own. What it knows of the entry is a
// hint. It is guarded by Backend.mu.
type localClaim struct {
	claim backend.Claim
	paths paths
	topic string    // in Backend.claims
	until time.Time // nobody believes in the claim after it, by what it was last told

	slot       string // names its entries, and no other claim's
	busy       int    // attempts that are in progress, which may create an entry
	putPending bool   // a Put that creates an entry was not answered and may still apply
	forgotten  bool   // out of Backend.claims

	key    string // of its entry
	entry  *entry // as last seen; nil if never; granted only by the reply of a write
	lease  *lease // what the entry is attached to; nil unknown
	shadow *lease // the same of its shadow
	ended  bool   // until has passed and the entry is being removed

	asked   time.Time // when the attempt was sent that was last told its position in the queue
	proving bool      // prove is in progress
	// the longest WaiterTTL of its heartbeats, which may be longer than its own
	stays time.Duration
}

// attempt notes that a claim is being made, and puts off its end to t+ttl. The caller says when it
// is done with it.
func (b *Backend) attempt(c backend.Claim, sent time.Time, ttl time.Duration) *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.scheme.paths(c.Key)
	topic := p.topic(c.ID())
	lc := b.claims[topic]
	if lc == nil || lc.ended { // what is being removed is not revived; safeguard: etcd-not-revived
		lc = &localClaim{paths: p, topic: topic, slot: b.takeSlot()}
		lc.key = p.entry(c, lc.slot)
		b.claims[topic] = lc
	}
	lc.claim = c
	lc.claim.Save = nil // may be long, and is of one verb
	lc.busy++
	lc.extend(sent.Add(ttl))
	return &attempt{b: b, c: c, paths: p, sent: sent, local: lc}
}

// done ends an attempt.
func (b *Backend) done(lc *localClaim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lc.busy--
	b.freeSlot(lc)
}

// holds reports whether the entry was seen to hold, in the reply of a write. The caller has mu.
func (lc *localClaim) holds() bool { return lc.entry != nil && lc.entry.granted }

// waiterTTL is for how long the claim's place in the queue is to last after each request: so long
// that its heartbeats find it on a lease that is long enough for them. The caller has mu.
func (lc *localClaim) waiterTTL() time.Duration {
	return max(lc.claim.WaiterTTL, lc.stays) // safeguard: etcd-heartbeat-ttl
}

// extend puts off the end of all belief in the claim. The caller has mu.
func (lc *localClaim) extend(until time.Time) {
	if until.After(lc.until) {
		lc.until = until
	}
}

// takeSlot returns a slot that no claim of this client has. The caller has mu.
func (b *Backend) takeSlot() string {
	if n := len(b.slots); n > 0 {
		slot := b.slots[n-1]
		b.slots = b.slots[:n-1]
		return slot
	}
	b.slotsMade++
	return b.id + "." + strconv.Itoa(b.slotsMade)
}

// freeSlot lets a slot be used again when no request can create an entry of that name any more.
// One whose Put was not answered never is. The caller has mu.
func (b *Backend) freeSlot(lc *localClaim) {
	if lc.forgotten && lc.busy == 0 && !lc.putPending && lc.slot != "" {
		b.slots = append(b.slots, lc.slot)
		lc.slot = ""
	}
}

// forget removes a claim from what this client knows. The caller has mu.
func (b *Backend) forget(lc *localClaim) {
	if b.claims[lc.topic] == lc {
		delete(b.claims, lc.topic)
	}
	for _, l := range []*lease{lc.lease, lc.shadow} {
		if l != nil {
			delete(l.claims, lc)
		}
	}
	lc.forgotten = true
	b.freeSlot(lc)
}

// forgetEnded removes the claims that ended without a word on leases that nobody keeps alive. The
// caller has mu.
func (b *Backend) forgetEnded() {
	now := time.Now()
	for _, lc := range b.claims {
		l := lc.lease
		if now.Sub(lc.until) > orphanTime && (l == nil || l.gone || l.lasts(now) <= 0) {
			b.forget(lc)
		}
	}
}

// wrote notes the outcome of a write of the entry: made, or pending if it may have been made or may
// yet be. The caller has mu.
func (lc *localClaim) wrote(w *write, made, pending bool) {
	l := w.on
	if !made && !pending {
		return
	}
	// A write over an entry creates none. safeguard: etcd-pending-stays
	lc.putPending = lc.putPending || pending && w.over == nil
	lc.key = w.key
	l.claims[lc] = struct{}{}
	if made && lc.lease != l {
		if lc.lease != nil {
			delete(lc.lease.claims, lc)
		}
		lc.lease = l
	}
	if made && w.shadow != nil && lc.shadow != w.shadow {
		if lc.shadow != nil {
			delete(lc.shadow.claims, lc)
		}
		lc.shadow = w.shadow
		w.shadow.claims[lc] = struct{}{}
	}
}

// removeEnded has the entries of a lease removed whose claims have ended: nobody believes in them,
// nobody released them, and the lease goes on for others. The caller has mu.
func (b *Backend) removeEnded(l *lease) {
	now := time.Now()
	var ended []*localClaim
	for lc := range l.claims {
		if lc.until.Before(now) {
			lc.ended = true
			ended = append(ended, lc)
		}
	}
	if ended != nil {
		b.tasks.Go(func() {
			for _, lc := range ended {
				b.remove(lc, l, now)
			}
		})
	}
}

// remove deletes a claim's entry if it is attached to l. An entry whose Put was not answered may
// still come, so it is looked for orphanTime longer. What fails is tried again after the next
// keepalive.
//
// Safety: the claim may come back. It then has another localClaim, as this one has ended, and
// finds its entry in the queue. If it wrote to the entry before the look, the entry is on its
// lease or the claim is seen to be back; if it writes later, either the write or the deletion
// fails its compare.
func (b *Backend) remove(lc *localClaim, l *lease, now time.Time) {
	ctx, cancel := context.WithTimeout(b.ctx, b.cfg.RequestTimeout)
	defer cancel()
	b.mu.Lock()
	key := lc.key
	b.mu.Unlock()
	reply, err := b.get(ctx, key)
	if err != nil {
		return
	}
	b.mu.Lock()
	back := b.claims[lc.topic] != lc
	mayCome := lc.putPending && now.Sub(lc.until) <= orphanTime
	if back || len(reply.Kvs) == 0 && !mayCome {
		delete(l.claims, lc)
		if !back {
			b.forget(lc)
		}
	}
	b.mu.Unlock()
	// safeguard: etcd-ended-own-lease
	if !back && len(reply.Kvs) > 0 && reply.Kvs[0].Lease == int64(l.id) {
		seen := unwritten(key, reply.Kvs[0].ModRevision)
		_, _, _ = b.commit(ctx, []clientv3.Cmp{seen}, lc.paths.deletes(&entry{key: key}), nil)
	}
}
