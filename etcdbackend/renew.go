package etcdbackend

import (
	"context"
	"errors"
	"slices"
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
	return b.verb(ctx, c.Key, func(ctx context.Context) error { return b.renew(ctx, c, time.Now()) })
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
	case lc == nil || !lc.granted || lc.lease == nil, c.MinToken > lc.entry.token():
		b.mu.Unlock()
		return b.adopt(ctx, c, sent)
	case c.Save != nil,
		lc.lease.ttl < c.TTL,      // it was handed over for a WaiterTTL
		lc.lease.lasts(sent) <= 0: // the server is late to end it
		own := lc.entry
		b.mu.Unlock()
		return b.move(ctx, c, sent, own, counter{})
	}
	lc.extend(sent.Add(c.TTL))
	f := b.keep(lc.lease, sent, c.TTL)
	l := &lookup{lc.key, lc.entry.created, int64(lc.lease.id), make(chan error, 1)}
	b.lookUp(l)
	b.mu.Unlock()
	var err error
	select {
	case err = <-l.answer:
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case errors.Is(err, errMoved):
		return b.adopt(ctx, c, sent)
	case err == nil:
		err = f.wait(ctx)
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
			last := max(seen.last, c.MinToken+uint64(max(c.Reserve, 1))-1)
			if err := a.count(&w, seen, last); err != nil {
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
		if now == nil || now.created != own.created {
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
func (b *Backend) Heartbeat(ctx context.Context, claims []backend.Claim) (answers []error, err error) {
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
	return answers, err
}

// A beat is the heartbeat of one claim under way.
type beat struct {
	local  *localClaim
	entry  *entry
	flight *flight // the keepalive that it needs, or nil
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
	answers, beats := make([]error, len(claims)), make([]beat, len(claims))
	b.mu.Lock()
	for n, group := range groups {
		b.keepPlaces(queues[n], claims, group, sent, answers, beats)
	}
	b.mu.Unlock()
	for i := range beats {
		if err := beats[i].flight.wait(ctx); err != nil {
			answers[i] = err // ErrLost: the entry went with its lease
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, on := range beats {
		if errors.Is(answers[i], backend.ErrHeld) && !b.waiting(on.local, *on.entry, sent) {
			answers[i] = backend.ErrLost
		}
	}
	for n, group := range groups {
		if q := queues[n].queue; q != nil {
			b.observe(b.scheme.paths(claims[group[0]].Key), q, "")
		}
	}
	return answers, nil
}

// keepPlaces has the leases of those of one key kept alive, and answers. The caller has mu.
func (b *Backend) keepPlaces(
	read readQueue, claims []backend.Claim, group []int, sent time.Time, answers []error, beats []beat,
) {
	if read.err != nil {
		for _, i := range group {
			answers[i] = read.err
		}
		return
	}
	p, q := b.scheme.paths(claims[group[0]].Key), read.queue
	byID := make(map[string]*entry, len(q.entries))
	for _, e := range slices.Backward(q.entries) { // of two of one claim, the one that is nearer to its turn
		byID[e.id()] = e
	}
	positions := q.positions()
	for _, i := range group {
		c := claims[i]
		lc, own := b.claims[p.topic(c.ID())], byID[c.ID()]
		answers[i] = backend.ErrLost
		if lc == nil || lc.ended || own == nil || !own.of(c) || own.granted || q.holder(c) != nil {
			continue
		}
		if f, kept := b.keepWaiting(lc, c, own, sent); kept {
			answers[i] = q.refused(own, positions[own])
			beats[i] = beat{lc, own, f}
			lc.extend(sent.Add(c.WaiterTTL)) // so that it is not removed before the answer is here
		}
	}
}

// errMoved says that another client of the same claim put the entry on a lease of its own.
var errMoved = errors.New("entry is on another lease")

// A lookup asks whether an entry is there, on a lease.
type lookup struct {
	key            string
	created, lease int64
	answer         chan error
}

const (
	maxLookups = 100 // in one request; a server takes 128 operations
	maxLookers = 4   // requests in flight, so that one that hangs does not hold up the rest
)

// lookUp has a lookup answered together with others: those who come while requests are in flight
// share the next one. The caller has mu.
func (b *Backend) lookUp(l *lookup) {
	b.lookups = append(b.lookups, l)
	if b.lookers < maxLookers {
		b.lookers++
		b.tasks.Go(b.answerLookups)
	}
}

func (b *Backend) answerLookups() {
	for {
		b.mu.Lock()
		n := min(len(b.lookups), maxLookups)
		batch := b.lookups[:n:n]
		b.lookups = b.lookups[n:]
		if n == 0 {
			b.lookers--
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		ops := make([]clientv3.Op, n)
		for i, l := range batch {
			ops[i] = clientv3.OpGet(l.key) // not keys only: that leaves out the lease
		}
		ctx, cancel := context.WithTimeout(b.ctx, b.cfg.RequestTimeout)
		reply, _, err := b.commit(ctx, nil, ops, nil)
		cancel()
		for i, l := range batch {
			if err != nil {
				l.answer <- err
				continue
			}
			switch kvs := reply.Responses[i].GetResponseRange().Kvs; {
			case len(kvs) == 0 || kvs[0].CreateRevision != l.created:
				l.answer <- backend.ErrLost
			case kvs[0].Lease != l.lease:
				l.answer <- errMoved
			default:
				l.answer <- nil
			}
		}
	}
}
