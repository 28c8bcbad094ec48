package etcdbackend

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// renew extends a hold that this client made by a keepalive of the lease, and a look at the entry: a deleted one must be
// noticed. Both are shared with other holds. One that another client made is moved to a lease of ours.
//
// Safety: the look is answered after the renewal began, so the entry was there then, attached to the lease that runs for a TTL
// from then on. Nothing is created.
func (b *Backend) renew(ctx context.Context, c backend.Claim, sent time.Time) error {
	p := b.scheme.at(c.Key)
	b.mu.Lock()
	h := b.holds[p.name(c)]
	switch {
	case h != nil && h.over:
		b.mu.Unlock()
		return backend.ErrLost
	case h == nil || !h.granted || h.lease == nil:
		b.mu.Unlock()
		return b.adopt(ctx, p, c, sent)
	case c.Save != nil || h.lease.ttl < c.TTL || h.lease.lasts(sent) <= 0: // handed over for a WaiterTTL; or the server is late to end it
		own := &entry{record: h.record, key: h.key, created: h.created, modified: h.written}
		h.until = later(h.until, sent.Add(c.TTL))
		b.mu.Unlock()
		return b.move(ctx, &attempt{b: b, c: c, place: p, sent: sent, h: h}, own)
	}
	h.until = later(h.until, sent.Add(c.TTL))
	k := b.leases.cover(h.lease, sent, c.TTL)
	look := &probe{key: h.key, created: h.created, lease: int64(h.lease.id), done: make(chan struct{})}
	b.mu.Unlock()
	b.prober.ask(look)
	err := b.await(ctx, look)
	if err == errMoved { //nolint:errorlint // our own, unwrapped
		return b.adopt(ctx, p, c, sent)
	}
	if err == nil {
		err = b.join(ctx, k)
	}
	if err == backend.ErrLost { //nolint:errorlint // our own, unwrapped
		b.mu.Lock()
		defer b.mu.Unlock()
		b.forget(h)
	}
	return err
}

// adopt proves that c holds and attaches its entry to a lease of its own length.
//
// Safety: an entry that held when the line was read, however stale the read, holds for as long as it exists, and the write
// compares that it does.
func (b *Backend) adopt(ctx context.Context, p place, c backend.Claim, sent time.Time) error {
	l, err := b.readLine(ctx, p)
	if err != nil {
		return err
	}
	own := l.own(c)
	if own == nil || !own.granted {
		return backend.ErrLost
	}
	h := b.touch(p, c, sent, c.TTL)
	defer b.done(h)
	return b.move(ctx, &attempt{b: b, c: c, place: p, sent: sent, h: h}, own)
}

// move attaches an entry that was seen to hold to a lease of the claim's own length, and saves the claim's state.
//
// Safety: the write compares that the entry is there, so the state is written while the claim holds. It also compares that
// nobody wrote to the entry since, and writes to it: a request that was not answered and was made again is not made after
// that, so it does not bring back an older state.
func (b *Backend) move(ctx context.Context, a *attempt, own *entry) error {
	for range restless {
		w := a.over(own, true)
		w.look = false
		if a.c.Save != nil {
			w.also = []clientv3.Op{clientv3.OpPut(a.place.state(), string(a.c.Save))}
		}
		o, err := a.write(ctx, w)
		switch {
		case err != nil:
			return err
		case o.written:
			_, err = a.granted(ctx, o)
			return err
		case o.lease == nil: // it ended; the next try takes another
			continue
		}
		now := o.line.at(own.key)
		if now == nil || now.created != own.created {
			b.drop(a.h)
			return backend.ErrLost
		}
		own = now // somebody else wrote to it: another request of the claim
	}
	return errRestless
}

// errMoved says that another client of the same claim put the entry on a lease of its own.
var errMoved = errors.New("etcd: entry is on another lease")

// A probe asks whether an entry is there.
type probe struct {
	key            string
	created, lease int64
	done           chan struct{}
	err            error
}

func (b *Backend) await(ctx context.Context, p *probe) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	probes  = 100 // in one request; a server takes 128 operations
	probers = 4   // requests under way, so that one that hangs does not hold up the rest
)

// A prober asks for many entries at once: those who come while requests are under way share the next one.
type prober struct {
	b *Backend

	mu      sync.Mutex
	pending []*probe
	running int
}

func (p *prober) ask(one *probe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, one)
	if p.running < probers {
		p.running++
		p.b.spawn(p.run)
	}
}

func (p *prober) run() {
	for {
		p.mu.Lock()
		n := min(len(p.pending), probes)
		batch := p.pending[:n:n]
		p.pending = p.pending[n:]
		if n == 0 {
			p.running--
		}
		p.mu.Unlock()
		if n == 0 {
			return
		}
		p.look(batch)
	}
}

func (p *prober) look(batch []*probe) {
	ctx, cancel := context.WithTimeout(p.b.ctx, p.b.cfg.RequestTimeout)
	defer cancel()
	ops := make([]clientv3.Op, len(batch))
	for i, one := range batch {
		ops[i] = clientv3.OpGet(one.key) // not keys only: that leaves out the lease
	}
	reply, _, err := p.b.commit(ctx, nil, ops, nil)
	for i, one := range batch {
		if one.err = err; err == nil {
			kvs := reply.Responses[i].GetResponseRange().Kvs
			switch {
			case len(kvs) == 0 || kvs[0].CreateRevision != one.created:
				one.err = backend.ErrLost
			case kvs[0].Lease != one.lease:
				one.err = errMoved
			}
		}
		close(one.done)
	}
}
