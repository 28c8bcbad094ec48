package etcdbackend

import (
	"cmp"
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// restless bounds how often an attempt begins anew because the line changed under it, or its lease ended.
const restless = 100

var errRestless = errors.New("etcd: the line changed faster than it could be read")

// An attempt is one TryAcquire at work.
type attempt struct {
	b     *Backend
	c     backend.Claim
	place place
	sent  time.Time // before anything was
	h     *hold
}

// An outcome is what one transaction of an attempt came to.
type outcome struct {
	grant    *entry // it holds
	lease    *lease // what was written is attached to it
	written  bool
	revision int64  // the transaction's
	line     *line  // what is known now, if nothing was settled; nil if that is nothing, but that the lock is taken
	state    []byte // with what was written
}

// run makes transactions until one settles the attempt. The first is all there is for a free lock: one Raft write, which
// compares that the line is empty.
func (a *attempt) run(ctx context.Context) (backend.Grant, error) {
	o, err := a.first(ctx)
	for range restless {
		if err != nil {
			return backend.Grant{}, err
		}
		if o.grant != nil {
			return a.granted(ctx, o)
		}
		o, err = a.next(ctx, o.line)
	}
	return backend.Grant{}, errRestless
}

// first looks whether a claim has come to its turn, or holds already, which costs no write, or takes a free lock. A shared claim
// looks, too: another client may have made its entry before, beside those of others.
func (a *attempt) first(ctx context.Context) (outcome, error) {
	a.b.mu.Lock()
	looks := a.h.own != nil || a.h.granted || a.c.Mode == backend.Shared
	blind := a.c.Queue && !a.h.loose && a.c.Mode == backend.Exclusive && !a.c.Reentrant
	a.b.mu.Unlock()
	if !looks {
		if a.c.Queue {
			a.b.leases.prepare(leaseSeconds(a.c.TTL), leaseSeconds(a.c.WaiterTTL))
		}
		return a.enterEmpty(ctx, blind)
	}
	l, err := a.b.readLine(ctx, a.place)
	return outcome{line: l}, err
}

// next takes the step that the line, as it was read, leaves to a claim. Each step that lets the claim in is a write whose
// compares, or whose reply, prove it at the write's own revision: a read may be stale (etcd #20418) and is never proof.
func (a *attempt) next(ctx context.Context, l *line) (outcome, error) {
	if l == nil {
		return a.stand(ctx)
	}
	own := l.own(a.c)
	holder := l.holder(a.c)
	mismatch := l.mismatch(a.c)
	switch {
	case own != nil && own.granted:
		return a.confirm(ctx, own)
	case mismatch != nil:
		return outcome{}, mismatch
	case holder != nil:
		return a.reenter(ctx, holder, own)
	case own != nil:
		return a.wait(ctx, l, own)
	case l.admits(a.c):
		return a.enter(ctx, l)
	case a.c.Queue:
		return a.stand(ctx)
	}
	return outcome{}, l.refusal(nil)
}

// granted waits until the lease is good for the whole TTL, and returns the grant.
func (a *attempt) granted(ctx context.Context, o outcome) (backend.Grant, error) {
	b := a.b
	b.mu.Lock()
	k := b.leases.cover(o.lease, a.sent, a.c.TTL)
	b.mu.Unlock()
	if err := b.join(ctx, k); errors.Is(err, backend.ErrLost) {
		return backend.Grant{}, errors.New("etcd: lease ended while the lock was granted") // unknown: to be asked again
	} else if err != nil {
		return backend.Grant{}, err
	}
	b.mu.Lock()
	ttl := max(a.c.TTL, o.lease.lasts(a.sent))
	b.mu.Unlock()
	b.holding(a.h, o.grant, a.sent.Add(ttl))
	return backend.Grant{Token: o.grant.token(), TTL: ttl, Reserved: max(a.c.Reserve, 1), State: o.state}, nil
}

// enterEmpty creates the entry if the line is empty, and reads the line otherwise, unless the claim would stand in it whatever
// there is: a read that is hardly ever made is carried by every request, and costs each 3 %.
//
// Safety: at the write's revision nobody holds and nobody waits. From then on its own entry keeps out all who must be.
func (a *attempt) enterEmpty(ctx context.Context, blind bool) (outcome, error) {
	p := a.place
	key := p.entry(a.c, a.h.slot)
	return a.write(ctx, write{guards: []clientv3.Cmp{absent(p.line, p.end())}, key: key, ttl: a.c.TTL, blind: blind})
}

// enter creates the entry of a claim that fits into the line as it was read, if nothing was created since.
//
// Safety: compared with the line read, entries may have gone at the write's revision, which lets in no fewer.
func (a *attempt) enter(ctx context.Context, l *line) (outcome, error) {
	p := a.place
	unchanged := createdBefore(p.line, p.end(), l.revision+1)
	key := p.entry(a.c, a.h.slot)
	return a.write(ctx, write{guards: []clientv3.Cmp{unchanged, absent(key, "")}, key: key, ttl: a.c.TTL})
}

// reenter creates a further hold of an owner who holds, and takes its claim out of the line.
//
// Safety: an entry that holds does so for as long as it exists, and the write compares that it does.
func (a *attempt) reenter(ctx context.Context, holder, own *entry) (outcome, error) {
	p := a.place
	key := p.reentry(a.c, a.h.slot)
	w := write{guards: []clientv3.Cmp{same(holder), absent(key, "")}, key: key, token: holder.token(), ttl: a.c.TTL}
	if own != nil {
		w.guards, w.also = append(w.guards, same(own)), []clientv3.Op{clientv3.OpDelete(own.key)}
	}
	return a.write(ctx, w)
}

// stand creates the entry behind all others. If they have gone by then it holds, and is confirmed like one whose turn came.
func (a *attempt) stand(ctx context.Context) (outcome, error) {
	p := a.place
	key := p.entry(a.c, a.h.slot)
	w := write{guards: []clientv3.Cmp{absent(key, "")}, key: key, ttl: a.c.WaiterTTL, waits: true, look: true}
	if a.c.Mode == backend.Permit {
		ours := p.limit(a.c)
		w.guards = append(w.guards, absent(p.line+"p/", ours), absent(clientv3.GetPrefixRangeEnd(ours), p.line+"p0"))
	}
	o, err := a.write(ctx, w)
	if o.written && (err != nil || o.line.own(a.c).key != key) {
		return a.stepBack(ctx, key, o, err)
	}
	return o, err
}

// stepBack removes an entry that was made beside another one of the same claim, which some other client had made, or among
// entries that are not ours. The claim goes on with the line as it is then.
func (a *attempt) stepBack(ctx context.Context, key string, o outcome, cause error) (outcome, error) {
	b, p := a.b, a.place
	reply, loose, err := b.commit(ctx, []clientv3.Cmp{unwritten(key, o.revision)},
		[]clientv3.Op{clientv3.OpDelete(key), p.get()}, []clientv3.Op{p.get()})
	if err != nil || loose {
		b.mu.Lock()
		a.h.loose = true // it may be there, and whoever releases the claim is to look for it
		b.mu.Unlock()
	}
	if cause != nil || err != nil {
		return outcome{}, cmp.Or(cause, err)
	}
	last := reply.Responses[len(reply.Responses)-1].GetResponseRange()
	l, err := p.read(reply.Header.Revision, last.Kvs)
	return outcome{line: l}, err
}

// confirm writes to an entry that holds by what was read, and attaches it to a lease of the TTL.
//
// Safety: the write's reply has the line at the write's revision. If the entry holds in it, it does until it is deleted, as
// an older entry cannot appear.
func (a *attempt) confirm(ctx context.Context, own *entry) (outcome, error) {
	o, err := a.write(ctx, a.over(own, true))
	if err == nil && o.written {
		if e := o.line.at(own.key); e != nil && e.granted {
			o.grant = e
		}
	}
	return o, err
}

// wait keeps the claim's place for its WaiterTTL, and tells it who is before it. What it is told is as of the read; the place is
// kept by the lease, and by a write only if it is on another client's.
func (a *attempt) wait(ctx context.Context, l *line, own *entry) (outcome, error) {
	b := a.b
	if a.c.Queue {
		b.mu.Lock()
		on := a.h.lease
		kept := on != nil && int64(on.id) == own.attached && !on.gone && on.ttl >= a.c.WaiterTTL
		var k *keepalive
		if kept {
			k = b.leases.cover(on, a.sent, a.c.WaiterTTL)
		}
		b.mu.Unlock()
		if !kept {
			o, err := a.write(ctx, a.over(own, false))
			if err != nil || !o.written || o.line.at(own.key) == nil || o.line.at(own.key).granted {
				return o, err
			}
			l, own = o.line, o.line.at(own.key)
			b.mu.Lock()
			k = b.leases.cover(o.lease, a.sent, a.c.WaiterTTL)
			b.mu.Unlock()
		}
		if err := b.join(ctx, k); errors.Is(err, backend.ErrLost) {
			return outcome{line: &line{}}, nil // the place went with its lease
		} else if err != nil {
			return outcome{}, err
		}
		b.stands(a.h, l, own, a.sent)
	}
	return outcome{}, l.refusal(own)
}

// over is a write to an entry that is there: for who holds with a lease that is not shorter than before, else for a WaiterTTL. It
// is made only if nobody wrote to the entry since: what another request of the claim was granted must not be cut short.
func (a *attempt) over(own *entry, holds bool) write {
	w := write{guards: []clientv3.Cmp{same(own)}, key: own.key, token: own.Token, look: true, own: own}
	if own.modified != 0 {
		w.guards = append(w.guards, unwritten(own.key, own.modified))
	}
	if w.ttl, w.waits = a.c.TTL, !holds; w.waits {
		w.ttl = a.c.WaiterTTL
	}
	if own.Held {
		w.least = own.Lease
	}
	return w
}

func (p place) get() clientv3.Op { return clientv3.OpGet(p.line, clientv3.WithRange(p.end())) }
