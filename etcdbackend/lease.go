package etcdbackend

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

const (
	// slackFrom is the TTL from which on leases are longer than claims ask for, by a third. One keepalive then serves all
	// claims and renewals that come within a third of the TTL after it. Below, the second to which etcd rounds is enough of
	// a delay for those who wait for a crashed holder.
	slackFrom = 6 * time.Second

	// crowd is how many entries share a lease. etcd revokes a lease with all its keys in one step.
	crowd = 4096

	// drift is what a lease's age is counted for at least: the two clocks' rates may differ by 1/64.
	drift = 64
)

// A lease is one etcd lease, shared by the claims of this client that ask for the same length. It is guarded by pool.mu.
//
// It never ends before began+ttl on the server's clock: began is when the last request was sent that gave it its whole length
// and was answered. So whoever needs it until a moment is served by arithmetic, or by a keepalive sent now.
type lease struct {
	id    clientv3.LeaseID
	ttl   time.Duration
	began time.Time
	gone  bool

	flight *keepalive // under way
	queued *keepalive // goes next

	entries map[*hold]struct{} // attached to it as far as we know
}

// A keepalive is one request for all who joined it before it was sent.
type keepalive struct {
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
func (l *lease) lasts(t time.Time) time.Duration {
	age := max(0, t.Sub(l.began))
	return l.ttl - age - age/drift
}

// A leaser keeps the leases of a client, one for each length.
type leaser struct {
	b       *Backend
	current map[int64]*lease     // by seconds
	grants  map[int64]*keepalive // under way
	tombs   *lease               // for tombstones; never kept alive
}

// lease returns a lease of so many seconds that has not ended, and makes one if need be. Whether it lasts long enough is for
// cover to say.
func (p *leaser) lease(ctx context.Context, seconds int64) (*lease, error) {
	for {
		p.b.mu.Lock()
		l := p.current[seconds]
		if l != nil && !l.gone && l.lasts(time.Now()) > 0 && len(l.entries) < crowd {
			p.b.mu.Unlock()
			return l, nil
		}
		flight := p.request(seconds)
		p.b.mu.Unlock()
		if err := p.b.join(ctx, flight); err != nil {
			return nil, err
		}
	}
}

// request has a lease made, if none is under way. The caller has mu.
func (p *leaser) request(seconds int64) *keepalive {
	flight := p.grants[seconds]
	if flight == nil {
		flight = &keepalive{done: make(chan struct{})}
		p.grants[seconds] = flight
		p.b.spawn(func() { p.grant(seconds, flight) })
	}
	return flight
}

// prepare has the leases made that a client needs for its first wait, at once and not one after the other.
func (p *leaser) prepare(seconds ...int64) {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	for _, s := range seconds {
		if p.current[s] == nil {
			p.request(s)
		}
	}
}

// grant makes a new lease. If its answer is lost, the lease ends by itself, with nothing attached.
func (p *leaser) grant(seconds int64, flight *keepalive) {
	l, err := p.make(seconds)
	p.b.mu.Lock()
	delete(p.grants, seconds)
	if err == nil {
		p.current[seconds] = l
	}
	p.b.sweep(time.Now())
	flight.err = err
	close(flight.done)
	p.b.mu.Unlock()
}

func (p *leaser) make(seconds int64) (*lease, error) {
	ctx, cancel := context.WithTimeout(p.b.ctx, p.b.cfg.RequestTimeout)
	defer cancel()
	l := &lease{began: time.Now(), entries: map[*hold]struct{}{}}
	reply, _, err := patiently(ctx, p.b.limits, p.b.soon(), func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return p.b.client.Grant(ctx, seconds)
	})
	if err != nil {
		return nil, err
	}
	l.id, l.ttl = reply.ID, time.Duration(reply.TTL)*time.Second // may be longer than asked for, see the election timeout
	return l, nil
}

// cover has the lease run for ttl from moment t on. It returns nil if it does, else the keepalive that sees to it. The caller
// has mu, and counts from t, which is not after now.
func (p *leaser) cover(l *lease, t time.Time, ttl time.Duration) *keepalive {
	switch {
	case l.lasts(t) >= ttl:
		return nil
	case l.flight == nil:
		l.flight = p.send(l)
		return l.flight
	case (&lease{ttl: l.ttl, began: l.flight.sent}).lasts(t) >= ttl:
		return l.flight
	case l.queued == nil:
		l.queued = &keepalive{done: make(chan struct{})}
	}
	return l.queued
}

// send starts a keepalive. The caller has mu.
func (p *leaser) send(l *lease) *keepalive {
	k := &keepalive{sent: time.Now(), done: make(chan struct{})}
	p.b.spawn(func() { p.keepAlive(l, k) })
	return k
}

// keepAlive asks once, and has the next keepalive sent if one was asked for meanwhile. Then it lets go of those entries whose
// claims ended without a word: they must not live on in the keepalives of others.
func (p *leaser) keepAlive(l *lease, k *keepalive) {
	limit := min(p.b.cfg.RequestTimeout, max(l.ttl/3, time.Second/4))
	ctx, cancel := context.WithTimeout(p.b.ctx, limit)
	defer cancel()
	reply, _, err := patiently(ctx, p.b.limits, min(p.b.soon(), limit/2), func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
		p.b.keepalives.Add(1)
		return p.b.client.KeepAliveOnce(ctx, l.id)
	})
	p.b.mu.Lock()
	switch {
	case err == nil:
		l.began = k.sent
		l.ttl = time.Duration(reply.TTL) * time.Second
	case noLease(err):
		l.gone = true
		err = backend.ErrLost
	case ctx.Err() != nil && p.b.ctx.Err() == nil:
		err = fmt.Errorf("no answer to a keepalive within %v", limit)
	}
	k.err = err
	close(k.done)
	if l.flight = l.queued; l.flight != nil {
		l.queued = nil
		next := l.flight
		next.sent = time.Now()
		p.b.spawn(func() { p.keepAlive(l, next) })
	}
	p.b.mu.Unlock()
	p.b.evict(l)
}

// lost marks a lease that the server does not know.
func (p *leaser) lost(l *lease) {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	l.gone = true
}

// burial returns a lease for a tombstone that must last so long. It is good for several, and then left to end.
func (p *leaser) burial(ctx context.Context, last time.Duration) (*lease, error) {
	p.b.mu.Lock()
	l := p.tombs
	p.b.mu.Unlock()
	if l != nil && !l.gone && l.lasts(time.Now()) >= last {
		return l, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l, err := p.make(int64(2*last/time.Second) + 1)
	if err != nil {
		return nil, err
	}
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.tombs = l
	return l, nil
}

// unbury gives up the lease for tombstones, which the server does not know.
func (p *leaser) unbury() {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.tombs = nil
}

// join waits for a keepalive or for a lease. nil is none to wait for.
func (b *Backend) join(ctx context.Context, k *keepalive) error {
	if k == nil {
		return nil
	}
	select {
	case <-k.done:
		return k.err
	default:
	}
	select {
	case <-k.done:
		return k.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
