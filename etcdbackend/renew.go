package etcdbackend

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// Renew extends the hold by a keepalive that it shares with others, and looks whether it is still
// there. It writes only if the hold was made by another client, or with a shorter TTL, or if there
// is a state to save or a token to raise.
func (b *Backend) Renew(ctx context.Context, c backend.Claim) error {
	if err := c.Validate(b.Capabilities()); err != nil {
		return err
	}
	c.Load = false
	return b.verb(ctx, c.Key, func(ctx context.Context) error {
		return b.renew(ctx, c, time.Now())
	})
}

// renew extends a hold that this client made by a keepalive of the lease, and a look at the entry:
// a deleted one must be noticed.
//
// Safety: the look is answered after the renewal began, so the entry was there then, attached to
// the lease that runs for a TTL from then on. Nothing is created.
func (b *Backend) renew(ctx context.Context, c backend.Claim, sent time.Time) error {
	b.mu.Lock()
	lc := b.claims[b.scheme.paths(c.Key).topic(c.ID())]
	switch {
	case lc != nil && lc.ended: // its entry is being removed
		b.mu.Unlock()
		return backend.ErrLost
	case lc == nil || !lc.holds() || lc.lease == nil, c.MinToken > lc.entry.token():
		b.mu.Unlock()
		return b.adopt(ctx, c, sent)
	case c.Save != nil,
		// it was handed over for a WaiterTTL
		lc.lease.ttl < c.TTL,
		lc.lease.lasts(sent) <= 0,                              // the server is late to end it
		b.outdated(lc.lease),                                   // an earlier leader may end it
		lc.shadow == nil, lc.shadow.lasts(sent) < lc.lease.ttl: // its shadow comes to its end
		own := lc.entry
		b.mu.Unlock()
		return b.move(ctx, c, sent, own, counter{})
	}
	lc.extend(sent.Add(c.TTL))
	l, key, created := lc.lease, lc.key, lc.entry.created
	b.keep(l, sent, c.TTL) // sent beside the look
	b.mu.Unlock()
	reply, err := b.get(ctx, key) // not its name only: that leaves out the lease
	switch {
	case err != nil:
		return err
	// safeguard: etcd-entry-there
	case len(reply.Kvs) == 0 || reply.Kvs[0].CreateRevision != created:
		err = backend.ErrLost
	case reply.Kvs[0].Lease != int64(l.id): // another client put it on a lease of its own
		return b.adopt(ctx, c, sent)
	default:
		err = b.lasting(ctx, l, sent, c.TTL)
	}
	if errors.Is(err, backend.ErrLost) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.forget(lc)
	}
	return err
}

// adopt proves that c holds and attaches its entry to a lease of ours of c's own length.
//
// Safety: an entry that held when the queue was read, however stale the read, holds for as long as
// it exists, and the write compares that it does.
func (b *Backend) adopt(ctx context.Context, c backend.Claim, sent time.Time) error {
	q, err := b.readQueue(ctx, b.scheme.paths(c.Key))
	if err != nil {
		return err
	}
	own := q.own(c)
	if own == nil || !own.granted {
		return backend.ErrLost
	}
	return b.move(ctx, c, sent, own, q.counter)
}

// move attaches an entry that was seen to hold to a lease of the claim's own length, saves the
// claim's state, and raises the token, and the counter as it was seen, to the claim's MinToken.
//
// Safety: the write compares that the entry is there, so the state is written while the claim
// holds. It also compares that nobody wrote to the entry since, and writes to it: a request that
// was not answered and was made again is not made after that, so it does not bring back an older
// state.
func (b *Backend) move(
	ctx context.Context, c backend.Claim, sent time.Time, own *entry, seen counter,
) error {
	a := b.attempt(c, sent, c.TTL)
	defer b.done(a.local)
	for range maxTries {
		w := a.overwrite(own, c.TTL, false)
		w.read = false
		if c.Save != nil {
			w.also = []clientv3.Op{clientv3.OpPut(a.paths.state(), string(c.Save))}
		}
		if c.MinToken > own.token() {
			if w.least = c.MinToken; w.token != 0 {
				w.token = c.MinToken
			}
			// safeguard: etcd-reserve-raised
			last := max(seen.last, c.MinToken+uint64(max(c.Reserve, own.Reserve, 1))-1)
			if err := a.count(ctx, &w, seen, last); err != nil {
				return err
			}
		}
		r, err := a.write(ctx, w)
		switch {
		case err != nil:
			return err
		case r.written:
			_, err = a.granted(ctx, r)
			return err
		case r.lease == nil: // the next try takes another
			continue
		}
		now := r.queue.at(own.key)
		if now == nil || now.created != own.created { // safeguard: etcd-renewed-same
			a.dropped()
			return backend.ErrLost
		}
		own, seen = now, r.queue.counter // somebody wrote to it: another request of the claim
	}
	return errTries
}

// Heartbeat keeps the claims' entries in their queues, as [backend.Backend] says: by one read of
// the queues, and by keepalives that they share with others. A claim that is in the queue by
// another client, or with a shorter lease, is not said to wait, so that it repeats TryAcquire,
// which writes.
func (b *Backend) Heartbeat(ctx context.Context,
	claims []backend.Claim,
) (answers []error, err error) {
	if err := backend.ValidateHeartbeat(claims, b.Capabilities()); err != nil || len(claims) == 0 {
		return nil, err
	}
	for i := range claims {
		if err := b.scheme.check(claims[i].Key); err != nil {
			return nil, err
		}
	}
	err = b.verb(ctx, claims[0].Key, func(ctx context.Context) (err error) {
		answers, err = b.heartbeat(ctx, claims, time.Now())
		return err
	})
	for i := range answers {
		// safeguard: etcd-heartbeat-answer
		answers[i] = b.answer(ctx, answers[i])
	}
	return answers, err
}

// Safety: as in renew, the read is answered after the heartbeat began. So the entry was there
// then, attached to the lease that runs for a WaiterTTL from then on.
func (b *Backend) heartbeat(
	ctx context.Context, claims []backend.Claim, sent time.Time,
) ([]error, error) {
	groups := backend.ByKey(claims)
	keys := make([]string, len(groups))
	for n, group := range groups {
		keys[n] = claims[group[0]].Key
	}
	queues, err := b.readQueues(ctx, keys)
	if err != nil {
		return nil, err
	}
	answers, waiters := make([]error, len(claims)), make([]waiter, len(claims))
	b.mu.Lock()
	for n, group := range groups {
		for _, i := range group {
			waiters[i], answers[i] = b.keepWaiting(queues[n], claims[i], sent)
		}
	}
	b.mu.Unlock()
	for i, w := range waiters {
		if w.lease == nil {
			continue
		}
		switch waits, err := b.stays(ctx, w, sent, claims[i].WaiterTTL); {
		case err != nil:
			answers[i] = err // ErrLost: the entry went with its lease
		case !waits:
			answers[i] = backend.ErrLost
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, key := range keys {
		if q := queues[n].queue; q != nil {
			b.observe(b.scheme.paths(key), q, "")
		}
	}
	return answers, nil
}

// keepWaiting has the lease of a claim kept alive that waits in a queue. The error is the claim's
// answer: final without a lease, else what it is told if the keepalive succeeds. The caller has mu.
func (b *Backend) keepWaiting(read readQueue, c backend.Claim, sent time.Time) (waiter, error) {
	q := read.queue
	if read.err != nil {
		return waiter{}, read.err
	}
	lc, own := b.claims[b.scheme.paths(c.Key).topic(c.ID())], q.own(c)
	// safeguard: etcd-owner-holds
	if lc == nil || lc.ended || own == nil || own.granted || q.holder(c) != nil {
		return waiter{}, backend.ErrLost
	}
	lc.stays = max(lc.stays, c.WaiterTTL)
	l := b.leaseOf(lc, own, c.WaiterTTL)
	if l == nil || q.unsettled() && q.firstAlive(own) { // safeguard: etcd-heartbeat-orphan
		return waiter{}, backend.ErrLost
	}
	lc.extend(sent.Add(c.WaiterTTL)) // so that it is not removed before the answer is here
	b.keep(l, sent, c.WaiterTTL)
	return waiter{lc, own, l}, q.refusal(own)
}
