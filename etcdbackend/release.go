package etcdbackend

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// Two answers of a release that are unknown: the claim was let in between a look and its release;
// and an earlier copy of the request, which was not answered, may have found the entry.
var (
	errUnsaved = errors.New("the lock was handed over while it was released; nothing was saved")
	errResent  = errors.New("a member did not say whether it released the lock")
)

// Release ends the claim in one Raft write, as [backend.Backend] says.
func (b *Backend) Release(ctx context.Context, c backend.Claim) error {
	if id := c.ID(); id == "" || len(id) > backend.MaxOwner {
		field := "owner"
		if c.Reentrant {
			field = "hold"
		}
		return invalid(field, "", "must have 1 to "+strconv.Itoa(backend.MaxOwner)+" bytes")
	}
	if err := c.ValidateRelease(b.Capabilities()); err != nil {
		return err
	}
	return b.verb(ctx, c.Key, func(ctx context.Context) error { return b.release(ctx, c) })
}

// A release is one Release at work.
type release struct {
	c         backend.Claim
	paths     paths
	entry     *entry // to be deleted; nil if none is known
	sure      bool   // the entry holds, and is all that there is of the claim
	tombstone []clientv3.Op
	leaves    []clientv3.Op // what c leaves for later holders: its state and its mark

	held, left bool // what the claim was found to be
	resent     bool
}

// release deletes what there is of c, leaves a tombstone unless nothing of c is in flight, and
// tells whether c held. What this client knows of is deleted in one request, whether it waits or
// was granted meanwhile; then whatever else is in the queue.
//
// Safety: an entry is deleted by its create revision, so another claim's never is (etcd #22082).
// What the deletion lets in holds in the same step, as the queue is a function of its entries.
func (b *Backend) release(ctx context.Context, c backend.Claim) error {
	r := release{c: c, paths: b.scheme.paths(c.Key)}
	b.mu.Lock()
	lc := b.claims[r.paths.topic(c.ID())]
	inFlight := !c.NoneInFlight
	if lc != nil {
		inFlight = inFlight || lc.putPending // what we resent, the caller knows nothing of
		r.entry, r.sure = lc.entry, lc.granted && !lc.putPending
	}
	b.mu.Unlock()
	if inFlight {
		on, err := b.lastingLease(&b.tombstones, 2*min(max(c.TTL, 0), backend.MaxTTL)+orphanTime)
		if err != nil {
			return err
		}
		r.tombstone = []clientv3.Op{clientv3.OpPut(r.paths.tombstone(c), "", clientv3.WithLease(on.id))}
	}
	if c.Save != nil {
		r.leaves = append(r.leaves, clientv3.OpPut(r.paths.state(), string(c.Save)))
	}
	if c.NotBefore > 0 {
		on, err := b.newLease(int64((c.NotBefore + time.Second - 1) / time.Second))
		if err != nil {
			return err
		}
		r.leaves = append(r.leaves, clientv3.OpPut(r.paths.early(), "", clientv3.WithLease(on.id)))
	}
	err := r.run(ctx, b)
	b.mu.Lock()
	if isNoLease(err) && b.tombstones != nil {
		b.tombstones.gone = true
	}
	if lc != nil {
		if lc.until = time.Now(); err == nil { // else removeEnded goes on, but not while this does
			b.forget(lc)
		}
	}
	b.mu.Unlock()
	switch {
	case err != nil:
		return err
	case r.held && r.leaves != nil && !r.left:
		return errUnsaved
	case r.held:
		return nil
	case r.resent:
		return errResent
	}
	return backend.ErrLost
}

// run deletes one entry after the other until there is none of the claim's. A state is saved by an
// entry that is known to hold, so it is looked for if this client does not know; among foreign
// entries that is not to be said, and nothing is saved.
func (r *release) run(ctx context.Context, b *Backend) error {
	if r.leaves != nil && !r.sure {
		q, err := b.readQueue(ctx, r.paths)
		if err == nil {
			r.entry = q.own(r.c)
		} else if !errors.Is(err, backend.ErrForeign) {
			return err
		}
	}
	for range maxTries {
		if more, err := r.step(ctx, b); err != nil || !more {
			return err
		}
	}
	return errTries
}

// step deletes the entry, if there is one, together with the write of the tombstone and of the
// state, and finds the next. It reports whether there is more to do.
//
// Safety: an entry that held when it was seen, however long ago, holds for as long as it exists,
// and the step compares that it does. So the state is saved by a holder.
func (r *release) step(ctx context.Context, b *Backend) (more bool, err error) {
	var guards []clientv3.Cmp
	e, sure, then, otherwise := r.entry, r.sure, r.tombstone, r.tombstone
	saves := e != nil && r.leaves != nil && !r.left && (e.granted || sure)
	if e != nil {
		guards = append(guards, same(e))
		then = append([]clientv3.Op{clientv3.OpDelete(e.key)}, then...)
	}
	if saves {
		then = slices.Concat(then, r.leaves)
	}
	if !sure {
		look := []clientv3.Op{r.paths.get()}
		then, otherwise = slices.Concat(then, look), slices.Concat(otherwise, look)
	}
	reply, resent, err := b.commit(ctx, guards, then, otherwise)
	r.resent = r.resent || resent
	if err != nil {
		return false, err
	}
	done := reply.Succeeded
	r.left, r.held = r.left || done && saves, r.held || done && (saves || sure)
	r.tombstone, r.entry, r.sure = nil, nil, false
	if sure {
		return !done, nil // if it is gone, look for another
	}
	q, err := r.paths.read(reply.Header.Revision, lastRange(reply))
	if err != nil { // foreign entries: ours is deleted, and whether it held is not to be said
		return false, nil //nolint:nilerr // as it was done
	}
	if e != nil && done {
		r.held = r.held || q.heldWith(e)
	}
	r.entry = q.own(r.c)
	return r.entry != nil, nil
}
