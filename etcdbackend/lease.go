package etcdbackend

import (
	"context"
	"fmt"
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

	granted *flight // the request that made it
	kept    *flight // the last keepalive, or granted if there was none
	keeping bool    // kept is in flight

	claims map[*localClaim]struct{} // whose entry is attached to it, or may be
	others int                      // other keys that were attached to it
}

// A flight is one request for all who wait for its answer.
type flight struct {
	sent time.Time     // or before
	done chan struct{} // closed when err is set
	err  error
}

func newFlight() *flight { return &flight{sent: time.Now(), done: make(chan struct{})} }

// wait waits for the answer, or until ctx ends.
func (f *flight) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
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
	return l.ttl - age - age/maxDrift
}

// takes reports whether another key may be attached to the lease that is to last so long.
func (l *lease) takes(atLeast time.Duration) bool {
	return !l.gone && l.lasts(time.Now()) >= atLeast && len(l.claims)+l.others < maxEntries
}

// lease returns the current lease of so many seconds, or makes one if it has come to its last
// quarter. Whether it lasts long enough is for keep to say. Callers that need one at the same time
// share the request.
func (b *Backend) lease(ctx context.Context, seconds int64) (*lease, error) {
	b.mu.Lock()
	l := b.leases[seconds]
	if l == nil || !l.takes(l.ttl/4) {
		l = b.newLease(seconds)
		b.leases[seconds] = l
		b.forgetEnded()
	}
	b.mu.Unlock()
	return l, l.granted.wait(ctx)
}

// lastingLease returns a lease that lasts so long at least: the current one of its kind, or
// another, which takes its place. It is good for several keys, never kept alive, and then left to
// end.
func (b *Backend) lastingLease(
	ctx context.Context, current **lease, atLeast time.Duration,
) (*lease, error) {
	b.mu.Lock()
	l := *current
	if l == nil || !l.takes(atLeast) {
		l = b.newLease(int64(2*atLeast/time.Second) + 1)
		*current = l
	}
	l.others++
	b.mu.Unlock()
	return l, l.granted.wait(ctx)
}

// newLease asks for a lease, whose granted is the answer. If that is lost, the lease ends by itself
// with nothing attached.
func (b *Backend) newLease(seconds int64) *lease {
	f := newFlight()
	l := &lease{
		ttl: time.Duration(seconds) * time.Second, began: f.sent, granted: f, kept: f,
		claims: map[*localClaim]struct{}{},
	}
	b.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(b.ctx, b.cfg.RequestTimeout)
		defer cancel()
		reply, _, err := resending(ctx, b.resendAfter(),
			func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
				return b.client.Grant(ctx, seconds)
			})
		b.mu.Lock()
		defer b.mu.Unlock()
		if err == nil {
			l.id = reply.ID
			l.ttl = time.Duration(reply.TTL) * time.Second // may be longer, see the election timeout
		}
		l.gone, f.err = err != nil, err
		close(f.done)
	})
	return l
}

// keep has the lease run for ttl from moment t on, which is not after now. It returns nil if it
// does, else the keepalive to wait for: one is in flight at a time, and it may have been sent before
// t. One that was sent after t and failed is not sent again. The caller has mu.
func (b *Backend) keep(l *lease, t time.Time, ttl time.Duration) *flight {
	if l.lasts(t) >= ttl {
		return nil
	}
	if !l.keeping && l.kept.sent.Before(t) {
		f := newFlight()
		l.kept, l.keeping = f, true
		b.tasks.Go(func() { b.keepAlive(l, f) })
	}
	return l.kept
}

// lasting waits until the lease runs for ttl from moment t on.
func (b *Backend) lasting(ctx context.Context, l *lease, t time.Time, ttl time.Duration) error {
	for {
		b.mu.Lock()
		f := b.keep(l, t, ttl)
		b.mu.Unlock()
		if f == nil {
			return nil
		}
		if err := f.wait(ctx); err != nil || !f.sent.Before(t) {
			return err
		}
	}
}

// keepAlive asks once for an extension. Then it removes the entries whose claims ended without a
// word: they must not live on in the keepalives of others.
func (b *Backend) keepAlive(l *lease, f *flight) {
	limit := min(b.cfg.RequestTimeout, l.ttl) // later it is of no use: it is counted from now
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	reply, _, err := resending(ctx, min(b.resendAfter(), limit/6),
		func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
			return b.client.KeepAliveOnce(ctx, l.id)
		})
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		l.began, l.ttl = f.sent, time.Duration(reply.TTL)*time.Second // safeguard: etcd-lease-began
	case isNoLease(err):
		l.gone, err = true, backend.ErrLost
	case ctx.Err() != nil && b.ctx.Err() == nil:
		err = fmt.Errorf("no answer to a keepalive within %v", limit)
	}
	f.err, l.keeping = err, false
	close(f.done)
	b.removeEnded(l)
}
