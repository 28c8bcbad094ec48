package etcdbackend

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

const (
	// slackFrom is the TTL from which on leases are longer than claims ask for, by a third. One
	// keepalive then serves all claims and renewals that come within a third of the TTL after it.
	// Below, the second to which etcd rounds is enough of a delay for those who wait for a crashed
	// holder.
	slackFrom = 6 * time.Second

	// maxEntries is how many entries share a lease. etcd revokes a lease with all its keys in one
	// step.
	maxEntries = 4096

	// maxDrift: the rates of the server's clock and of ours may differ by 1/maxDrift, so a lease
	// ages faster by that.
	maxDrift = 64

	// orphanTime is for how much longer than its claim's belief an entry is looked for whose Put
	// was not answered.
	orphanTime = time.Minute
)

// A lease is one etcd lease, shared by the claims of this client that ask for the same length. It
// is guarded by Backend.mu.
//
// Safety: it never ends before began+ttl on the server's clock, as began is when the last request
// was sent that gave it its whole length and was answered: before the request, never from its
// answer. So whoever needs it until a moment is served by arithmetic, or by a keepalive sent now.
type lease struct {
	id    clientv3.LeaseID
	ttl   time.Duration
	began time.Time
	gone  bool // the server does not know it

	sent   *flight // the keepalive that is in flight
	queued *flight // the one that goes next

	claims map[*localClaim]struct{} // whose entry is attached to it, or may be
	uses   int                      // of one that is not kept alive: keys attached to it
}

// A flight is one request for all who joined it before it was sent.
type flight struct {
	sent time.Time
	done chan struct{} // closed when err is set
	err  error
}

// leaseSeconds is the length of the lease for a claim's TTL or WaiterTTL.
func leaseSeconds(ttl time.Duration) int64 {
	if ttl >= slackFrom {
		ttl += ttl / 3
	}
	return int64((ttl + time.Second - 1) / time.Second)
}

// lasts returns for how long at least the lease runs from moment t on.
func (l *lease) lasts(t time.Time) time.Duration { return lasts(l.ttl, l.began, t) }

func lasts(ttl time.Duration, began, t time.Time) time.Duration {
	age := max(0, t.Sub(began))
	return ttl - age - age/maxDrift
}

// lease returns a lease of so many seconds that has not ended, and makes one if need be. Whether
// it lasts long enough is for keep to say. Who needs one at the same time shares the request.
func (b *Backend) lease(ctx context.Context, seconds int64) (*lease, error) {
	for {
		b.mu.Lock()
		l := b.leases[seconds]
		if l != nil && !l.gone && l.lasts(time.Now()) > l.ttl/4 && len(l.claims) < maxEntries {
			b.mu.Unlock()
			return l, nil
		}
		f := b.grants[seconds]
		if f == nil {
			f = &flight{done: make(chan struct{})}
			b.grants[seconds] = f
			b.tasks.Go(func() { b.grant(seconds, f) })
		}
		b.mu.Unlock()
		if err := f.wait(ctx); err != nil {
			return nil, err
		}
	}
}

func (b *Backend) grant(seconds int64, f *flight) {
	l, err := b.newLease(seconds)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.grants, seconds)
	if err == nil {
		b.leases[seconds] = l
	}
	now := time.Now()
	for _, lc := range b.claims { // of leases that nobody kept alive
		l := lc.lease
		if now.Sub(lc.until) > orphanTime && (l == nil || l.gone || l.lasts(now) <= 0) {
			b.forget(lc)
		}
	}
	f.err = err
	close(f.done)
}

// newLease asks for a lease. If the answer is lost, the lease ends by itself with nothing
// attached.
func (b *Backend) newLease(seconds int64) (*lease, error) {
	ctx, cancel := context.WithTimeout(b.ctx, b.cfg.RequestTimeout)
	defer cancel()
	l := &lease{began: time.Now(), claims: map[*localClaim]struct{}{}}
	reply, _, err := resending(ctx, b.resendAfter(),
		func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
			return b.client.Grant(ctx, seconds)
		})
	if err != nil {
		return nil, err
	}
	l.id = reply.ID
	l.ttl = time.Duration(reply.TTL) * time.Second // may be longer, see the election timeout
	return l, nil
}

// keep has the lease run for ttl from moment t on, which is not after now. It returns nil if it
// does, else the keepalive that sees to it. The caller has mu.
func (b *Backend) keep(l *lease, t time.Time, ttl time.Duration) *flight {
	switch {
	case l.lasts(t) >= ttl:
		return nil
	case l.sent == nil:
		l.sent = &flight{sent: time.Now(), done: make(chan struct{})}
		b.tasks.Go(func() { b.keepAlive(l, l.sent) })
		return l.sent
	case lasts(l.ttl, l.sent.sent, t) >= ttl:
		return l.sent
	case l.queued == nil:
		l.queued = &flight{done: make(chan struct{})}
	}
	return l.queued
}

// keepAlive asks for one extension after the other, as long as another is wanted when one is
// answered: one at a time. After each it removes the entries whose claims ended without a word:
// they must not live on in the keepalives of others.
func (b *Backend) keepAlive(l *lease, f *flight) {
	for f != nil {
		ttl, err := b.keepAliveOnce(l)
		b.mu.Lock()
		switch {
		case err == nil:
			l.began, l.ttl = f.sent, ttl
		case isNoLease(err):
			l.gone, err = true, backend.ErrLost
		}
		f.err = err
		close(f.done)
		if f, l.queued = l.queued, nil; f != nil {
			f.sent = time.Now()
		}
		l.sent = f
		b.removeEnded(l)
		b.mu.Unlock()
	}
}

func (b *Backend) keepAliveOnce(l *lease) (time.Duration, error) {
	limit := min(b.cfg.RequestTimeout, l.ttl) // later it is of no use: it is counted from now
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	reply, _, err := resending(ctx, min(b.resendAfter(), limit/6),
		func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
			b.keepalives.Add(1)
			return b.client.KeepAliveOnce(ctx, l.id)
		})
	if err == nil {
		return time.Duration(reply.TTL) * time.Second, nil
	}
	if ctx.Err() != nil && b.ctx.Err() == nil {
		err = fmt.Errorf("no answer to a keepalive within %v", limit)
	}
	return 0, err
}

// lastingLease returns a lease that lasts so long at least: the current one of its kind, or
// another, which takes its place. It is good for several keys, never kept alive, and then left to
// end.
func (b *Backend) lastingLease(current **lease, atLeast time.Duration) (*lease, error) {
	b.mu.Lock()
	l := *current
	usable := l != nil && !l.gone && l.lasts(time.Now()) >= atLeast && l.uses < maxEntries
	if usable {
		l.uses++
	}
	b.mu.Unlock()
	if usable {
		return l, nil
	}
	l, err := b.newLease(int64(2*atLeast/time.Second) + 1)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	*current = l
	return l, nil
}

// wait waits for the answer. A nil flight is none to wait for.
func (f *flight) wait(ctx context.Context) error {
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
		return f.err
	default:
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

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

	key     string // of its entry
	entry   *entry // as last seen; nil if it was never seen
	granted bool   // the entry was seen to hold, in the reply of a write
	lease   *lease // what the entry is attached to; nil unknown
	ended   bool   // until has passed and the entry is being removed

	asked   time.Time // when the attempt was sent that was last told its position in the queue
	proving bool      // prove is in progress
}

// attempt notes that a claim is being made, and puts off its end to t+ttl. The caller says when it
// is done with it.
func (b *Backend) attempt(c backend.Claim, sent time.Time, ttl time.Duration) *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.scheme.paths(c.Key)
	topic := p.topic(c.ID())
	lc := b.claims[topic]
	if lc == nil || lc.ended { // what is being removed is not revived
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
	if lc.lease != nil {
		delete(lc.lease.claims, lc)
	}
	lc.forgotten = true
	b.freeSlot(lc)
}

// wrote notes the outcome of a write of the entry that attaches it to l: made, or pending if it
// may have been made or may yet be. The caller has mu.
func (lc *localClaim) wrote(w write, l *lease, made, pending bool) {
	if !made && !pending {
		return
	}
	lc.putPending = lc.putPending || pending && w.over == nil // a write over an entry creates none
	lc.key = w.key
	l.claims[lc] = struct{}{}
	if made && lc.lease != l {
		if lc.lease != nil {
			delete(lc.lease.claims, lc)
		}
		lc.lease = l
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
	if !back && len(reply.Kvs) > 0 && reply.Kvs[0].Lease == int64(l.id) {
		seen := unwritten(key, reply.Kvs[0].ModRevision)
		_, _ = b.client.Txn(ctx).If(seen).Then(clientv3.OpDelete(key)).Commit()
	}
}
