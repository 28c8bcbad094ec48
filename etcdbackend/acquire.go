package etcdbackend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// maxTries bounds how often a verb begins anew because the queue changed under it, or its lease
// ended.
const maxTries = 100

var errTries = errors.New("the queue changed faster than it could be read")

// An attempt is one TryAcquire at work, or the part of a Renew that writes.
type attempt struct {
	b     *Backend
	c     backend.Claim
	paths paths
	sent  time.Time // before anything was
	local *localClaim

	early, ran int64 // the revisions of the marks that were seen and do not refuse the claim
}

// TryAcquire makes one attempt, as [backend.Backend] says: one Raft write if the lock is free and
// this client has a lease for its TTL. A claim that must wait takes a second one, and a third when
// its turn has come.
func (b *Backend) TryAcquire(ctx context.Context, c backend.Claim) (g backend.Grant, err error) {
	if err := c.Validate(b.Capabilities()); err != nil {
		return g, err
	}
	err = b.verb(ctx, c.Key, func(ctx context.Context) error {
		believed := c.TTL // for how long at most the claim is believed in, whatever the answer
		if c.Queue {
			believed = max(believed, c.WaiterTTL)
		}
		a := b.attempt(c, time.Now(), believed)
		defer b.done(a.local)
		g, err = a.run(ctx)
		var held *backend.HeldError
		if backend.AnswerOf(err) == backend.No && (!errors.As(err, &held) || held.Position == 0) {
			a.dropped()
		}
		return err
	})
	return g, err
}

// dropped forgets a claim of which nothing is in etcd. What may be is kept in mind, and removed
// when nobody believes in it.
func (a *attempt) dropped() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if !a.local.putPending { // safeguard: etcd-dropped-pending
		a.b.forget(a.local)
	}
}

// run makes transactions until one settles the attempt. The first is all there is for a free lock:
// one Raft write, which compares that the queue is empty.
func (a *attempt) run(ctx context.Context) (backend.Grant, error) {
	r, err := a.first(ctx)
	for range maxTries {
		if err != nil {
			return backend.Grant{}, err
		}
		if r.granted != nil {
			return a.granted(ctx, r)
		}
		r, err = a.next(ctx, r.queue)
	}
	return backend.Grant{}, errTries
}

// first reads the queue for a claim that is in it as far as this client knows, which costs no
// write, and tries to take a free lock otherwise. A shared claim reads, too: another client may
// have made its entry before, beside those of others. So does one with a minimum token, which needs
// the counter.
func (a *attempt) first(ctx context.Context) (result, error) {
	a.b.mu.Lock()
	known := a.local.entry != nil
	a.b.mu.Unlock()
	if !known && a.c.Mode != backend.Shared && a.c.MinToken == 0 {
		return a.takeFree(ctx)
	}
	q, err := a.b.readQueue(ctx, a.paths)
	return result{queue: q}, err
}

// next takes the step that the queue, as it was read, leaves to a claim. Each step that grants is
// a write whose compares, or whose reply, prove it at the write's own revision: a read may be
// stale (etcd #20418) and is never proof.
func (a *attempt) next(ctx context.Context, q *queue) (result, error) {
	if r, done, err := a.clear(ctx, q); done || err != nil {
		return r, err
	}
	own, holder, mismatch := q.own(a.c), q.holder(a.c), q.mismatch(a.c)
	switch {
	case own != nil && own.granted:
		return a.confirm(ctx, q, own)
	case mismatch != nil:
		return result{}, mismatch
	case holder != nil:
		return a.reenter(ctx, holder, own)
	case own != nil:
		return a.wait(ctx, q, own)
	case q.admits(a.c):
		return a.join(ctx, q)
	case a.c.Queue:
		return a.enqueue(ctx)
	}
	return result{}, q.refusal(nil)
}

// takeFree creates the entry if the queue is empty.
//
// Safety: at the write's revision nobody holds and nobody waits. From then on its own entry keeps
// out all who must be.
func (a *attempt) takeFree(ctx context.Context) (result, error) { return a.write(ctx, a.ifFree()) }

// ifFree is the write of takeFree.
func (a *attempt) ifFree() write {
	empty := a.paths.unchanged(0) // safeguard: etcd-queue-empty
	return write{guards: empty, key: a.paths.entry(a.c, a.local.slot), ttl: a.c.TTL}
}

// join creates the entry of a claim that fits into the queue as it was read, if nothing was
// created since.
//
// Safety: compared with the queue read, entries may have gone at the write's revision, which lets
// in no fewer.
func (a *attempt) join(ctx context.Context, q *queue) (result, error) {
	p := a.paths
	key := p.entry(a.c, a.local.slot)
	unchanged := p.unchanged(q.revision) // safeguard: etcd-queue-unchanged
	w := write{guards: append(unchanged, p.unused(key)...), key: key, ttl: a.c.TTL}
	if err := a.number(ctx, &w, q.counter); err != nil {
		return result{}, err
	}
	return a.write(ctx, w)
}

// number has a write give its entry, which holds then, the next token of the counter as it was
// seen; see [counter].
func (a *attempt) number(ctx context.Context, w *write, seen counter) error {
	if seen == (counter{}) && a.c.MinToken == 0 {
		return nil
	}
	w.least = max(seen.next(), min(a.c.MinToken, backend.MinTokenLimit(time.Now(), a.c.TTL)))
	// safeguard: etcd-reserved-counted
	return a.count(ctx, w, seen, w.least+uint64(max(a.c.Reserve, 1))-1)
}

// count has a write set the counter, if nobody has since it was seen.
func (a *attempt) count(ctx context.Context, w *write, seen counter, last uint64) error {
	on, err := a.b.lastingLease(ctx, &a.b.counters, counterTime)
	if err != nil {
		return err
	}
	key := a.paths.counter()
	w.guards = append(w.guards, unwritten(key, seen.modified)) // safeguard: etcd-counter
	put := clientv3.OpPut(key, strconv.FormatUint(last, 10), clientv3.WithLease(on.id))
	w.also, w.counter = append(w.also, put), on
	return nil
}

// reenter creates a further hold of an owner who holds, and takes its claim out of the queue.
//
// Safety: an entry that holds does so for as long as it exists, and the write compares that it
// does.
func (a *attempt) reenter(ctx context.Context, holder, own *entry) (result, error) {
	p := a.paths
	key := p.reentry(a.c, a.local.slot)
	guards := append(p.unused(key), same(holder)) // safeguard: etcd-reenter-holder
	w := write{guards: guards, key: key, token: holder.token(), ttl: a.c.TTL}
	if own != nil {
		// safeguard: etcd-reenter-queued
		w.guards, w.also = append(w.guards, same(own)), p.deletes(own)
	}
	return a.write(ctx, w)
}

// enqueue creates the entry behind all others. If they have gone by then it holds, and is
// confirmed like one whose turn came.
func (a *attempt) enqueue(ctx context.Context) (result, error) {
	p := a.paths
	key := p.entry(a.c, a.local.slot)
	guards := p.unused(key)
	if a.c.Mode == backend.Permit { // none of another limit
		ours := p.limit(a.c)
		lower := createdBefore(p.queue+"p/", ours, 1)
		higher := createdBefore(clientv3.GetPrefixRangeEnd(ours), p.queue+"p0", 1)
		guards = append(guards, lower, higher) // safeguard: etcd-one-limit
	}
	w := write{guards: guards, key: key, ttl: a.c.WaiterTTL, waits: true, read: true}
	r, err := a.write(ctx, w)
	if r.written && (err != nil || r.queue.own(a.c).key != key) {
		return a.withdrawDuplicate(ctx, key, r, err)
	}
	return r, err
}

// withdrawDuplicate removes an entry that was made beside another one of the same claim, which
// some other client had made, or among entries that are not ours. The claim goes on with the queue
// as it is then.
func (a *attempt) withdrawDuplicate(
	ctx context.Context, key string, r result, cause error,
) (result, error) {
	b, p := a.b, a.paths
	reply, resent, err := b.commit(ctx, []clientv3.Cmp{unwritten(key, r.revision)},
		append([]clientv3.Op{clientv3.OpDelete(key)}, p.reads()...), p.reads())
	if err != nil || resent {
		b.mu.Lock()
		a.local.putPending = true // it may be there: a release has to look for it
		b.mu.Unlock()
	}
	if cause != nil || err != nil {
		return result{}, cmp.Or(cause, err)
	}
	q, err := b.read(p, reply.Header, p.lastRead(reply))
	return result{queue: q}, err
}

// confirm writes to an entry that holds by what was read, and attaches it to a lease of the TTL.
//
// Safety: the write's reply has the queue at the write's revision. If the entry holds in it, it
// does until it is deleted, as an older entry cannot appear.
//
// One that did not hold before gets its token: nobody else writes the counter from the revision on
// at which the queue was read and the entry held, but those who share the lock, whose tokens are in
// no order.
func (a *attempt) confirm(ctx context.Context, q *queue, own *entry) (result, error) {
	w := a.overwrite(own, a.c.TTL, false)
	if !own.Held && own.Token == 0 {
		if err := a.number(ctx, &w, q.counter); err != nil {
			return result{}, err
		}
	}
	r, err := a.write(ctx, w)
	if err == nil && r.written { // safeguard: etcd-written-confirms
		if e := r.queue.at(own.key); e != nil && e.granted {
			r.granted = e
		}
	}
	return r, err
}

// wait keeps the claim in the queue for its WaiterTTL, or for that of its heartbeats, and tells it
// its position as of the read. A keepalive of the lease does that, and a write only if the entry is
// on another client's lease, or on a shorter one.
func (a *attempt) wait(ctx context.Context, q *queue, own *entry) (result, error) {
	if !a.c.Queue {
		return result{}, q.refusal(own)
	}
	b := a.b
	b.mu.Lock()
	ttl := a.local.waiterTTL()
	l := b.leaseOf(a.local, own, ttl)
	b.mu.Unlock()
	if l == nil {
		r, err := a.write(ctx, a.overwrite(own, ttl, true))
		if err != nil || !r.written || r.queue.at(own.key) == nil || r.queue.at(own.key).granted {
			return r, err
		}
		q, own, l = r.queue, r.queue.at(own.key), r.lease
	}
	refusal := q.refusal(own)
	waits, err := b.stays(ctx, waiter{a.local, own, l}, a.sent, ttl)
	switch {
	case errors.Is(err, backend.ErrLost):
		return result{queue: &queue{}}, nil // the entry went with its lease
	case err != nil:
		return result{}, unkept(err)
	case !waits: // granted since the queue was read
		q, err := b.readQueue(ctx, a.paths)
		return result{queue: q}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observe(a.paths, q, a.local.topic)
	return result{}, refusal
}

// leaseOf returns the lease that an entry which waits is on, or nil if a claim with such a
// WaiterTTL has to write to the entry: it is on another client's lease, on a shorter one, or on one
// that an earlier leader may end. The caller has mu.
func (b *Backend) leaseOf(lc *localClaim, own *entry, waiterTTL time.Duration) *lease {
	l := lc.lease
	if l == nil || l.gone || int64(l.id) != own.attached || l.ttl < waiterTTL || b.outdated(l) {
		return nil
	}
	return l
}

// A waiter is a claim of this client whose entry is in the queue.
type waiter struct {
	local *localClaim
	entry *entry
	lease *lease // which the entry is on
}

// stays has a claim wait in the queue for ttl from sent on, by a keepalive of its entry's lease. It
// reports false if the entry was granted meanwhile.
func (b *Backend) stays(
	ctx context.Context, w waiter, sent time.Time, ttl time.Duration,
) (waits bool, err error) {
	if err := b.lasting(ctx, w.lease, sent, ttl); err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting(w.local, *w.entry, sent), nil
}

// waiting notes that an entry waits, and reports false if it was granted meanwhile: that cannot be
// undone, and its lease does not count from asked. The caller has mu.
func (b *Backend) waiting(lc *localClaim, own entry, asked time.Time) bool {
	if b.claims[lc.topic] != lc {
		return true // released meanwhile: nobody believes the answer
	}
	if lc.holds() && lc.entry.created == own.created { // safeguard: etcd-granted-meanwhile
		return false
	}
	lc.key, lc.entry = own.key, &own // an entry that held was another one
	lc.asked, lc.until = asked, asked.Add(lc.waiterTTL())
	return true
}

// unkept is why the lease is not good for long enough of a claim's entry that is there. Whatever
// that is, it is no answer to the claim, which may hold or wait: it is to be asked again, or
// released.
func unkept(err error) error {
	//nolint:errorlint // see above
	return fmt.Errorf("the lease of its entry: %v", err) // safeguard: etcd-unkept
}

// granted waits until the lease is good for the whole TTL, and returns the grant.
func (a *attempt) granted(ctx context.Context, r result) (backend.Grant, error) {
	b, lc := a.b, a.local
	if err := b.lasting(ctx, r.lease, a.sent, a.c.TTL); err != nil {
		return backend.Grant{}, unkept(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	ttl := max(a.c.TTL, r.lease.lasts(a.sent)) // safeguard: etcd-lease-left
	lc.key, lc.entry = r.granted.key, r.granted
	lc.extend(a.sent.Add(ttl))
	return backend.Grant{
		Token: r.granted.token(), TTL: ttl, Reserved: max(a.c.Reserve, 1), State: r.state,
	}, nil
}

// A write is one transaction that creates an entry, or writes over it.
type write struct {
	guards  []clientv3.Cmp
	key     string        // of the entry
	over    *entry        // as it was seen, if it is there already: it keeps its create revision
	token   uint64        // if it is not to be the entry's own
	least   uint64        // the entry's token at least; 0 as it was
	counter *lease        // of the counter, if also has one
	shadow  *lease        // of the shadow, unless it waits
	ttl     time.Duration // of the lease it is attached to
	seconds int64         // length of the lease at least
	waits   bool          // the entry is not known to hold
	also    []clientv3.Op // made with it
	read    bool          // read the queue after the write: that decides then, not the write

	// By ready: the lease of the entry, its value, and what the transaction does.
	on     *lease
	record record
	then   []clientv3.Op
}

// A result is what one transaction of an attempt came to.
type result struct {
	granted  *entry // holds; nil if that is not decided
	written  bool
	revision int64  // the transaction's
	lease    *lease // of what was written; nil if the server does not know it: nothing was written
	queue    *queue // as of revision, if that was read
	state    []byte // the stored state, if the claim asks for it and the write was made
}

// overwrite is a write to an entry that is there, attaching it to a lease for ttl, and for one who
// holds to none shorter than before. It is made only if nobody wrote to the entry since it was
// seen: what another request of the claim was granted must not be cut short.
func (a *attempt) overwrite(own *entry, ttl time.Duration, waits bool) write {
	w := write{
		// safeguard: etcd-unwritten-since
		guards: []clientv3.Cmp{same(own), unwritten(own.key, own.modified)},
		key:    own.key, over: own, token: own.Token, least: own.Min, ttl: ttl, waits: waits,
		read: true,
	}
	if own.Held {
		w.seconds = own.Lease
	}
	return w
}

// ready makes out of w what its transaction compares and does: no entry is ever created for a claim
// that was released.
func (a *attempt) ready(ctx context.Context, w *write) (err error) {
	b, p := a.b, a.paths
	if w.on, err = b.leasesFor(ctx, w); err != nil {
		return err
	}
	w.record = record{
		Owner: a.c.Owner, Hold: a.c.Hold, Reentrant: a.c.Reentrant, Token: w.token, Min: w.least,
		Reserve: a.c.Reserve,
		Held:    !w.waits, Meta: a.c.Meta,
	}
	b.mu.Lock()
	w.record.Lease, w.record.Term = int64(w.on.ttl/time.Second), w.on.term
	b.keep(w.on, a.sent, w.ttl) // sent beside the transaction; whoever needs it waits for it
	b.mu.Unlock()
	if w.over != nil {
		w.record.Created = w.over.created                   // safeguard: etcd-shadow-place
		w.record.Reserve = max(a.c.Reserve, w.over.Reserve) // safeguard: etcd-reserve-kept
	}
	value, err := json.Marshal(w.record)
	if err != nil {
		return &backend.InvalidError{Field: "meta", Reason: err.Error()}
	}
	if w.over == nil {
		w.guards = append(w.guards, absent(p.tombstone(a.c))) // safeguard: etcd-tombstone
	}
	put := clientv3.OpPut(w.key, "", clientv3.WithLease(w.on.id))
	put.WithValueBytes(value)
	if w.shadow != nil {
		shadow := clientv3.OpPut(p.shadow(w.key), "", clientv3.WithLease(w.shadow.id))
		shadow.WithValueBytes(value)
		w.also = append(w.also, shadow) // safeguard: etcd-shadow
	}
	w.then = append([]clientv3.Op{put}, w.also...)
	return nil
}

// settled notes what became of w's transaction. Without a lease that it needs, nothing was written.
func (a *attempt) settled(w *write, reply *clientv3.TxnResponse, resent bool, err error) {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if isNoLease(err) {
		for _, l := range []*lease{w.on, w.counter, w.shadow} { // it is not said which
			if l != nil {
				l.gone = true
			}
		}
	}
	// safeguard: etcd-resent-pending
	a.local.wrote(w, err == nil && reply.Succeeded, resent || err != nil && !isNoLease(err))
}

// write makes the transaction: the entry, or else a read of the queue and of the claim's
// tombstone.
func (a *attempt) write(ctx context.Context, w write) (result, error) {
	b, p := a.b, a.paths
	if err := a.ready(ctx, &w); err != nil {
		return result{}, err
	}
	otherwise := append([]clientv3.Op{clientv3.OpGet(p.tombstone(a.c), clientv3.WithKeysOnly())},
		p.reads()...)
	if a.heeds(w) {
		w.guards = append(w.guards, a.asSeen()...)
		otherwise = slices.Insert(otherwise, 1, clientv3.OpGet(p.early()), clientv3.OpGet(p.ran()))
	}
	then := w.then
	if a.c.Load {
		then = append(then, clientv3.OpGet(p.state()))
	}
	if w.read {
		then = append(then, p.reads()...)
	}
	reply, resent, err := b.commit(ctx, w.guards, then, otherwise)
	a.settled(&w, reply, resent, err)
	switch {
	case isNoLease(err): // nothing was written
		return result{queue: &queue{}}, nil
	case err != nil:
		return result{}, err
	}
	return a.wrote(ctx, &w, reply)
}

// wrote reads the reply to a write's transaction.
func (a *attempt) wrote(ctx context.Context, w *write,
	reply *clientv3.TxnResponse,
) (result, error) {
	b, p, made := a.b, a.paths, reply.Succeeded
	switch {
	case !made && reply.Responses[0].GetResponseRange().Count > 0:
		return result{}, fmt.Errorf("%w: it was released before", backend.ErrLost)
	case !made && a.heeds(*w):
		err := a.tooEarly(ctx, reply.Responses[1].GetResponseRange().Kvs,
			reply.Responses[2].GetResponseRange().Kvs)
		if err != nil {
			return result{}, err
		}
	}
	r := result{written: made, revision: reply.Header.Revision, lease: w.on}
	if made && a.c.Load { // as of the write's own revision, at which the claim holds if it does
		r.state = stateIn(reply.Responses[len(w.then)].GetResponseRange().Kvs)
	}
	if made && !w.read {
		r.granted = a.entered(w, r.revision)
		return r, nil
	}
	var err error
	r.queue, err = b.read(p, reply.Header, p.lastRead(reply))
	return r, err
}

// entered is the entry, which holds, of a write that was made at a revision.
func (a *attempt) entered(w *write, revision int64) *entry {
	e := &entry{record: w.record, key: w.key, attached: int64(w.on.id), granted: true}
	e.created, e.modified = revision, revision
	e.kind, _ = a.paths.kind(w.key)
	if w.over != nil {
		e.created = w.over.created
	}
	return e
}

// stateIn is the stored state that was read, or nil. An empty value comes as nil, and is a state.
func stateIn(kvs []*mvccpb.KeyValue) []byte {
	if len(kvs) == 0 {
		return nil
	}
	return append([]byte{}, kvs[0].Value...)
}
