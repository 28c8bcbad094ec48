package etcdbackend

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/suspend"
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
// The time since began is by a clock that stands still while this machine is suspended, and the
// server's goes on: what was slept since is added, see lasts. The other moments here (of a
// localClaim, of flights) are not reckoned so: they say which was first, or when nobody believes in
// a claim any more, and late is not wrong there.
type lease struct {
	id    clientv3.LeaseID
	ttl   time.Duration
	began time.Time
	slept time.Duration // how long this machine had been suspended when it began
	term  uint64        // the last raft term that was told of before it was asked for
	gone  bool          // the server does not know it

	asleep func(time.Time) time.Duration // Backend.slept

	granted *flight // the request that made it
	kept    *flight // the last keepalive, or granted if there was none
	keeping bool    // kept is in flight

	claims map[*localClaim]struct{} // whose entry is attached to it, or may be
	others int                      // other keys that were attached to it
}

// A flight is one request for all who wait for its answer.
type flight struct {
	sent  time.Time     // or before
	slept time.Duration // by then
	done  chan struct{} // closed when err is set
	err   error
}

func (b *Backend) newFlight() *flight {
	now := time.Now()
	return &flight{sent: now, slept: b.slept(now), done: make(chan struct{})}
}

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

// lasts returns for how long at least the lease runs from moment t on, which is not after now.
//
// Safety: what this machine slept until now is part of the lease's age, also what it slept after t:
// so it is counted twice at most, here and by who believes in a hold from t on.
func (l *lease) lasts(t time.Time) time.Duration {
	age := max(0, t.Sub(l.began))
	if slept := l.asleep(time.Now()) - l.slept; slept > suspend.Napless { // safeguard: etcd-suspend
		age += slept
	}
	return l.ttl - age - age/maxDrift
}

// takes reports whether another key may be attached to the lease that is to last so long.
func (l *lease) takes(atLeast time.Duration) bool {
	return !l.gone && l.lasts(time.Now()) >= atLeast && len(l.claims)+l.others < maxEntries
}

// leasesFor returns the lease for a write's entry, and sets that for its shadow, if it needs one.
// Whether the first lasts long enough is for keep to say. Callers that need one at the same time
// share the request.
func (b *Backend) leasesFor(ctx context.Context, w *write) (*lease, error) {
	b.mu.Lock()
	l := b.lease(max(leaseSeconds(w.ttl), w.seconds))
	if !w.waits {
		w.shadow = b.lasts(&b.shadows, max(shadowTime, 2*w.ttl)) // safeguard: etcd-long-shadow
	}
	b.mu.Unlock()
	if w.shadow != nil {
		if err := w.shadow.granted.wait(ctx); err != nil {
			return nil, err
		}
	}
	return l, l.granted.wait(ctx)
}

// lease returns the current lease of so many seconds, or makes one if it has come to its last
// quarter, or if another leader may end it early. The caller has mu.
func (b *Backend) lease(seconds int64) *lease {
	l := b.leases[seconds]
	if l == nil || !l.takes(l.ttl/4) || b.outdated(l) {
		l = b.newLease(seconds, true)
		b.leases[seconds] = l
		b.forgetEnded()
	}
	return l
}

// outdated reports whether an earlier leader than the present one may have the lease in its books,
// and end it early, see shadow.go. The caller has mu.
// safeguard: etcd-outdated
func (b *Backend) outdated(l *lease) bool { return l.term < b.term.Load() }

// lastingLease returns a lease that lasts so long at least: the current one of its kind, or
// another, which takes its place. It is good for several keys, never kept alive, and then left to
// end.
func (b *Backend) lastingLease(
	ctx context.Context, current **lease, atLeast time.Duration,
) (*lease, error) {
	b.mu.Lock()
	l := b.lasts(current, atLeast)
	l.others++
	b.mu.Unlock()
	return l, l.granted.wait(ctx)
}

// lasts is lastingLease without the wait for it. The caller has mu, and says what is attached.
func (b *Backend) lasts(current **lease, atLeast time.Duration) *lease {
	if *current == nil || !(*current).takes(atLeast) {
		*current = b.newLease(int64(2*atLeast/time.Second)+1, false)
	}
	return *current
}

// newLease asks for a lease, which is to be kept alive or not, and whose granted is the answer. If
// that is lost, the lease ends by itself with nothing attached.
func (b *Backend) newLease(seconds int64, kept bool) *lease {
	f := b.newFlight()
	l := &lease{
		ttl: time.Duration(seconds) * time.Second, began: f.sent, slept: f.slept, asleep: b.slept,
		granted: f, kept: f,
		claims: map[*localClaim]struct{}{}, term: b.term.Load(), // safeguard: etcd-lease-term
	}
	b.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(b.ctx, b.cfg.RequestTimeout)
		defer cancel()
		if kept && l.term == 0 { // this client's first request
			term := b.firstTerm(ctx)
			b.mu.Lock()
			l.term = term
			b.mu.Unlock()
		}
		reply, _, err := resending(ctx, b.resendAfter(),
			func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
				return b.client.Grant(ctx, seconds)
			})
		b.mu.Lock()
		defer b.mu.Unlock()
		if err == nil {
			l.id = reply.ID
			// The TTL may be longer than what was asked for, see the election timeout.
			l.ttl = time.Duration(reply.TTL) * time.Second
		}
		l.gone, f.err = err != nil, err
		close(f.done)
	})
	return l
}

// keep has the lease run for ttl from moment t on, which is not after now. It returns nil if it
// does, else the keepalive to wait for: one is in flight at a time, and it may have been sent
// before t. One that was sent after t and failed is not sent again. The caller has mu.
func (b *Backend) keep(l *lease, t time.Time, ttl time.Duration) *flight {
	if l.lasts(t) >= ttl {
		return nil
	}
	if !l.keeping && l.kept.sent.Before(t) {
		f := b.newFlight()
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
	reply, err := asking(ctx, min(b.resendAfter(), limit/6),
		func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
			return b.client.KeepAliveOnce(ctx, l.id)
		})
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		l.slept = f.slept
		l.began, l.ttl = f.sent, time.Duration(reply.TTL)*time.Second // safeguard: etcd-lease-began
		b.see(reply.ResponseHeader)
	case isNoLease(err):
		l.gone, err = true, backend.ErrLost
	case ctx.Err() != nil && b.ctx.Err() == nil:
		err = fmt.Errorf("no answer to a keepalive within %v", limit)
	}
	f.err, l.keeping = err, false
	close(f.done)
	b.removeEnded(l)
}

// firstTerm asks for the raft term. Any member's answer will do: it says that a change was made in
// this term. It is 0 if there is none, and then the lease is taken for one of an earlier term.
func (b *Backend) firstTerm(ctx context.Context) uint64 {
	_, _ = b.get(ctx, b.scheme.identity(), clientv3.WithSerializable(), clientv3.WithCountOnly())
	return b.term.Load()
}
