package etcdbackend

import (
	"context"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// A hold is what this client knows of a claim of its own: a hint, except that nobody believes in the claim after until. It is
// guarded by Backend.mu.
type hold struct {
	claim backend.Claim
	place place
	name  string    // in the table of holds
	until time.Time // the end of all belief in it, by what the claim was last told

	slot    string // names its entries, and no other claim's
	busy    int    // attempts and releases under way, which may create or delete an entry
	gone    bool   // out of the tables
	key     string // its entry
	created int64  // the entry's create revision; 0 unknown
	written int64  // its last write that we know of; 0 unknown
	granted bool   // the entry was seen to hold, in the reply of a write
	record  record // its value then
	lease   *lease // what the entry is attached to; nil unknown
	over    bool   // until has passed, and the entry is being removed
	loose   bool   // a write was not answered, and may yet be made
	stray   bool   // a deletion was not

	asked    time.Time // when the attempt was sent that was last told its place
	ahead    []*entry  // what keeps it waiting, as of seen and less what was deleted since
	own      *entry
	checking bool // look is under way
	again    bool // and is to look once more
}

// name is the key of the table of holds.
func (p place) name(c backend.Claim) string { return p.line + "\xff" + c.ID() }

// touch returns the hold of c, with its end put off to t+ttl. The caller says when it is done with it.
func (b *Backend) touch(p place, c backend.Claim, t time.Time, ttl time.Duration) *hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := p.name(c)
	h := b.holds[name]
	if h == nil || h.over { // what was removed is not revived
		h = &hold{place: p, name: name, slot: b.takeSlot()}
		h.key = p.entry(c, h.slot)
		b.holds[name] = h
	}
	h.claim = c
	h.claim.Save = nil // may be long, and is of one verb
	h.busy++
	h.until = later(h.until, t.Add(ttl))
	return h
}

// done ends an attempt, or a release.
func (b *Backend) done(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.busy--
	b.giveSlot(h)
}

// takeSlot returns a slot that no claim of this client has. The caller has mu.
func (b *Backend) takeSlot() string {
	if n := len(b.slots); n > 0 {
		slot := b.slots[n-1]
		b.slots = b.slots[:n-1]
		return slot
	}
	b.made++
	return b.id + strconv.Itoa(b.made)
}

// giveSlot takes a slot back when nothing can write to its keys any more. The caller has mu.
func (b *Backend) giveSlot(h *hold) {
	if h.gone && h.busy == 0 && !h.loose && !h.stray && h.slot != "" {
		b.slots = append(b.slots, h.slot)
		h.slot = ""
	}
}

// drop forgets what is certainly not in the store.
func (b *Backend) drop(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !h.loose {
		b.forget(h)
	}
}

// sweep forgets what ended long ago. The caller has mu.
func (b *Backend) sweep(now time.Time) {
	for _, h := range b.holds {
		if now.Sub(h.until) > late && (h.lease == nil || h.lease.gone || h.lease.lasts(now) <= 0) {
			b.forget(h)
		}
	}
}

// wrote notes a write of the entry to a lease: that it was made, or that it may have been or may yet be. The caller has mu.
func (h *hold) wrote(key string, l *lease, made, loose bool) {
	h.loose = h.loose || loose
	if !made && !loose {
		return
	}
	h.key = key
	l.entries[h] = struct{}{}
	if made && h.lease != l {
		if h.lease != nil {
			delete(h.lease.entries, h)
		}
		h.lease = l
	}
}

// forget takes h out of the tables. The caller has mu.
func (b *Backend) forget(h *hold) {
	if b.holds[h.name] == h {
		delete(b.holds, h.name)
	}
	if h.lease != nil {
		delete(h.lease.entries, h)
	}
	b.leaveLine(h)
	h.gone = true
	b.giveSlot(h)
}

// holding notes that the entry holds.
func (b *Backend) holding(h *hold, e *entry, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.key, h.created, h.written, h.granted, h.record = e.key, e.created, e.modified, true, e.record
	h.until = later(h.until, until)
	b.leaveLine(h)
}

// late is for how much longer than its claim's belief an entry is looked for that may not have been written yet.
const late = time.Minute

// evict removes the entries of a lease whose claims are over: nobody believes in them, nobody released them, and the lease goes
// on for others. An entry whose attempt was not answered may still come, so it is looked for a while longer.
func (b *Backend) evict(l *lease) {
	now := time.Now()
	var ended []*hold
	b.mu.Lock()
	for h := range l.entries {
		if h.until.Before(now) {
			h.over = true
			ended = append(ended, h)
		}
	}
	b.mu.Unlock()
	for _, h := range ended {
		if b.ctx.Err() != nil {
			return
		}
		b.remove(h, l, now)
	}
}

// remove deletes the entry as it was seen, if it is still attached to l and its claim did not come back. Whoever came back
// before the look wrote to the entry, or is seen to have come back; whoever comes later writes to it, and the compare fails.
func (b *Backend) remove(h *hold, l *lease, now time.Time) {
	ctx, cancel := context.WithTimeout(b.ctx, b.cfg.RequestTimeout)
	defer cancel()
	b.mu.Lock()
	key := h.key
	b.mu.Unlock()
	reply, _, err := patiently(ctx, b.limits, b.soon(), func(ctx context.Context) (*clientv3.GetResponse, error) {
		return b.client.Get(ctx, key)
	})
	if err != nil {
		return // next time
	}
	b.mu.Lock()
	back := b.holds[h.name] != h
	if back || len(reply.Kvs) == 0 && (!h.loose || now.Sub(h.until) > late) {
		delete(l.entries, h)
		if !back {
			b.forget(h)
		}
	}
	b.mu.Unlock()
	if back || len(reply.Kvs) == 0 || reply.Kvs[0].Lease != int64(l.id) {
		return
	}
	_, _ = b.client.Txn(ctx).
		If(unwritten(key, reply.Kvs[0].ModRevision)).
		Then(clientv3.OpDelete(key)).Commit() // the next keepalive looks again
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
