package etcdbackend

import (
	"context"
	"errors"
	"slices"
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

// Release ends the claim in one Raft write, as [backend.Backend] says. Of a claim that was made
// [backend.ShortHold] ago or longer, by its Meta.Since, that request also reads the queue.
func (b *Backend) Release(ctx context.Context, c backend.Claim) (told backend.Released, err error) {
	if err := c.ValidateRelease(b.Capabilities()); err != nil {
		return told, err
	}
	err = b.verb(ctx, c.Key, func(ctx context.Context) (err error) {
		told, err = b.release(ctx, c)
		return err
	})
	return told, err
}

// A release is one Release at work.
type release struct {
	c         backend.Claim
	paths     paths
	entry     *entry // to be deleted; nil if none is known
	sure      bool   // the entry holds, and is all that there is of the claim
	tombstone []clientv3.Op
	leaves    []clientv3.Op // what c leaves for later holders: its state and its marks
	kept      clientv3.LeaseID

	held, left bool // what the claim was found to be
	resent     bool
	told       backend.Released
}

// release deletes what there is of c, leaves a tombstone unless nothing of c is in flight, and
// tells whether c held. What this client knows of is deleted in one request, whether it waits or
// was granted meanwhile; then whatever else is in the queue.
//
// Safety: an entry is deleted by its create revision, so another claim's never is (etcd #22082).
// What the deletion lets in holds in the same step, as the queue is a function of its entries.
//
// A release that leaves something and was not answered is made again, and whoever makes it takes an
// entry that is gone for one that it ended before. So as long as the claim is believed in, nothing
// else may delete the entry: removeEnded, which would leave nothing, has to wait for that.
func (b *Backend) release(ctx context.Context, c backend.Claim) (told backend.Released, err error) {
	r := release{c: c, paths: b.scheme.paths(c.Key)}
	b.mu.Lock()
	lc := b.claims[r.paths.topic(c.ID())]
	inFlight := !c.NoneInFlight
	if lc != nil {
		// What we resent, the caller knows nothing of. safeguard: etcd-release-pending
		inFlight = inFlight || lc.putPending
		r.entry, r.sure = lc.entry, lc.holds() && !lc.putPending
	}
	b.mu.Unlock()
	if inFlight {
		on, err := b.lastingLease(ctx, &b.tombstones,
			2*min(max(c.TTL, 0), backend.MaxTTL)+orphanTime)
		if err != nil {
			return told, err
		}
		r.tombstone = []clientv3.Op{clientv3.OpPut(r.paths.tombstone(c), "",
			clientv3.WithLease(on.id))}
	}
	if r.leaves, err = r.toLeave(ctx, b); err != nil {
		return told, err
	}
	err = r.run(ctx, b)
	b.mu.Lock()
	if isNoLease(err) && b.tombstones != nil { // safeguard: etcd-tombstones-lease
		b.tombstones.gone = true
	}
	switch {
	case lc == nil:
	case err == nil:
		lc.until = time.Now()
		b.forget(lc)
	case r.leaves == nil: // safeguard: etcd-unsaved-stays
		lc.until = time.Now() // removeEnded goes on, but not while this does
	}
	b.mu.Unlock()
	switch {
	case err != nil:
		return told, err
	case r.held && r.leaves != nil && !r.left:
		return told, errUnsaved
	case r.held:
		return r.told, nil
	case r.resent: // safeguard: etcd-release-resent
		return told, errResent
	}
	return told, backend.ErrLost
}

// toLeave is the writes of what the claim leaves for later holders: its state and its marks, but
// see ran.
func (r *release) toLeave(ctx context.Context, b *Backend) (writes []clientv3.Op, err error) {
	if r.c.Save != nil {
		writes = append(writes, clientv3.OpPut(r.paths.state(), string(r.c.Save)))
	}
	if r.c.NotBefore > 0 {
		marks, err := r.marks(ctx, b)
		if err != nil {
			return nil, err
		}
		writes = append(writes, marks...)
	}
	return writes, nil
}

// run deletes one entry after the other until there is none of the claim's. A state is saved by an
// entry that is known to hold, so it is looked for if this client does not know; among foreign
// entries that is not to be said, and nothing is saved.
func (r *release) run(ctx context.Context, b *Backend) error {
	if r.leaves != nil && !r.sure {
		q, err := b.readQueue(ctx, r.paths)
		if err == nil {
			r.entry = q.left(r.c)
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
	saves := r.saves()
	if e != nil {
		guards = append(guards, same(e)) // safeguard: etcd-same-entry
		then = append(r.paths.deletes(e), then...)
	}
	if saves {
		then = slices.Concat(then, r.leaves, r.ran(e))
	}
	// A quick pair has no use for it.
	looks := !sure || time.Since(r.c.Meta.Since) >= backend.ShortHold
	if looks {
		look := r.paths.reads()
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
	if !looks || sure && !done {
		return !done, nil // if it is gone, look for another
	}
	q, err := b.read(r.paths, reply.Header, r.paths.lastRead(reply))
	if err != nil { // foreign entries: ours is deleted, and whether it held is not to be said
		return false, nil //nolint:nilerr // as it was done
	}
	if done {
		r.deleted(q, e, sure)
	}
	if sure {
		return false, nil
	}
	r.entry = q.left(r.c)
	return r.entry != nil, nil
}

// saves reports whether the next step is the one that leaves what the claim leaves: its entry
// holds, and no earlier step has.
func (r *release) saves() bool {
	return r.entry != nil && r.entry.shadowed == "" && r.leaves != nil && !r.left &&
		(r.entry.granted || r.sure)
}

// deleted takes note of the entry that a step has deleted, if there was one: whether it held, by
// the queue as of that step, and who waits behind it.
func (r *release) deleted(q *queue, e *entry, sure bool) {
	if e == nil || e.shadowed != "" { // an orphan's hold had ended before
		return
	}
	if held, told := q.heldWith(e); held || sure {
		r.held, r.told = true, told
	}
}
