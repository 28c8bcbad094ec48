package etcdbackend

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// errUnsaved is an unknown answer, too: c was let in between a look and its release.
var errUnsaved = errors.New("etcd: the lock was handed over while it was released, and nothing was saved")

// errLoose is an unknown answer: the request before, which was not answered, may have found the entry.
var errLoose = errors.New("etcd: a member did not say whether it released the lock")

// release deletes whatever there is of c, leaves a tombstone unless c is settled, and tells whether c held. What this client
// knows of is deleted in one request; the rest is looked for. An entry is deleted by its create revision, or by a name that is
// its own, so another claim's never is (etcd #22082).
//
// Cancel and grant: the line is a function of its entries, so what the deletion lets in holds in the same step.
func (b *Backend) release(ctx context.Context, c backend.Claim) error {
	p := b.scheme.at(c.Key)
	r := &releasing{b: b, c: c, place: p}
	b.mu.Lock()
	h := b.holds[p.name(c)]
	settled := c.NoneInFlight && (h == nil || !h.loose) // what we sent twice by ourselves, the caller knows nothing of
	if h != nil {
		r.certain = h.granted && !h.loose
		r.plain = r.certain && settled && c.Save == nil && h.busy == 0
		h.busy++
		defer b.done(h)
		if h.created != 0 {
			known := h.record
			if h.own != nil {
				known = h.own.record
			}
			r.known = &entry{record: known, key: h.key, created: h.created, class: p.classOf(h.key), limit: c.Limit}
		}
	}
	b.mu.Unlock()
	if !settled {
		on, err := b.leases.burial(ctx, 2*min(max(c.TTL, 0), backend.MaxTTL)+late)
		if err != nil {
			return err
		}
		r.bury = []clientv3.Op{clientv3.OpPut(p.tombstone(c), "", clientv3.WithLease(on.id))}
	}
	err := r.run(ctx)
	if noLease(err) {
		b.leases.unbury()
	}
	if h != nil {
		b.mu.Lock()
		h.stray = h.stray || r.loose
		if h.until = time.Now(); err == nil { // else whoever keeps the lease alive removes it, but not while we do
			b.forget(h)
		}
		b.mu.Unlock()
	}
	if err != nil {
		return err
	}
	switch {
	case r.held && r.c.Save != nil && !r.saved:
		return errUnsaved
	case r.held:
		return nil
	case r.loose:
		return errLoose
	}
	return backend.ErrLost
}

// releasing is one release at work.
type releasing struct {
	b       *Backend
	c       backend.Claim
	place   place
	known   *entry // what this client knows of; nil if nothing
	certain bool   // that is all there is, and it holds
	plain   bool   // nobody else is at work on it, and nothing is to be written
	bury    []clientv3.Op

	held, loose, saved bool
}

// run deletes one entry after the other until there is none of the claim's.
func (r *releasing) run(ctx context.Context) error {
	e, err := r.first(ctx)
	if err != nil {
		return err
	}
	for range restless {
		l, err := r.next(ctx, e)
		if err != nil {
			return err
		}
		if l == nil {
			return nil
		}
		if e = l.own(r.c); e == nil {
			return nil
		}
	}
	return errRestless
}

// first is the entry to begin with. A state is saved by an entry that is known to hold, so it is looked for if this client
// does not know. Among foreign entries that is not to be said, and nothing is saved.
func (r *releasing) first(ctx context.Context) (*entry, error) {
	if r.c.Save == nil || r.certain {
		return r.known, nil
	}
	l, err := r.b.readLine(ctx, r.place)
	if errors.Is(err, backend.ErrForeign) {
		return r.known, nil
	}
	if err != nil {
		return nil, err
	}
	return l.own(r.c), nil
}

// save is the write of the claim's state in the step that deletes e.
//
// Safety: an entry that held when it was seen, however long ago, holds for as long as it exists, and the step compares that
// it does.
func (r *releasing) save(e *entry) []clientv3.Op {
	if r.c.Save == nil || e == nil || r.saved || !e.granted && !r.certain {
		return nil
	}
	return []clientv3.Op{clientv3.OpPut(r.place.state(), string(r.c.Save))}
}

// next deletes e, by its name alone if that will do, and returns what step does.
func (r *releasing) next(ctx context.Context, e *entry) (*line, error) {
	if r.plain {
		r.plain = false
		if err := r.strike(ctx, e.key); err != nil || r.held {
			return nil, err
		}
		r.certain = false // it was gone
	}
	return r.step(ctx, e)
}

// strike deletes a key without a compare, which is less work for everybody than a transaction, and tells whether it was there.
//
// Safety: a slot names one claim's entry until every request that was sent for it is answered. So what has this name is the
// entry that holds: it cannot have gone and come again, as no attempt of the claim is under way.
func (r *releasing) strike(ctx context.Context, key string) error {
	reply, loose, err := patiently(ctx, r.b.limits, r.b.soon(), func(ctx context.Context) (*clientv3.DeleteResponse, error) {
		return r.b.client.Delete(ctx, key)
	})
	r.loose = loose || err != nil
	r.held = err == nil && reply.Deleted > 0
	return err
}

// step deletes e, if there is one, with the tombstone if that was not yet done, and returns the line without it; nil if
// nothing can be left.
func (r *releasing) step(ctx context.Context, e *entry) (*line, error) {
	var guards []clientv3.Cmp
	then, save := r.bury, r.save(e)
	if e != nil {
		guards = append(guards, same(e))
		then = slices.Concat([]clientv3.Op{clientv3.OpDelete(e.key)}, r.bury, save)
	}
	if !r.certain {
		then = append(then[:len(then):len(then)], r.place.get())
	}
	otherwise := slices.Concat(r.bury, []clientv3.Op{r.place.get()})
	reply, loose, err := r.b.commit(ctx, guards, then, otherwise)
	r.loose = r.loose || loose
	if err != nil {
		return nil, err
	}
	r.bury = nil
	if reply.Succeeded && save != nil {
		r.held, r.saved = true, true
	}
	if r.certain && reply.Succeeded {
		r.held = true
		return nil, nil
	}
	r.certain = false
	last := reply.Responses[len(reply.Responses)-1].GetResponseRange()
	l, err := r.place.read(reply.Header.Revision, last.Kvs)
	if err != nil { // foreign entries: ours is deleted, and whether it held is not to be said
		return nil, nil //nolint:nilerr // as it was done
	}
	if e != nil && reply.Succeeded {
		left := *l
		r.held = left.with(e) || r.held
		if l, err = r.place.read(reply.Header.Revision, last.Kvs); err != nil {
			return nil, err
		}
	}
	return l, nil
}
