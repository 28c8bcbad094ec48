package etcdbackend

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A slowGrant is the leases of a client that hears of one of some length when it is told to.
type slowGrant struct {
	*simConn
	seconds int64
	granted chan struct{} // closed when the lease is there
	heard   chan struct{} // closed to have the client hear of it
}

func (g *slowGrant) LeaseGrant(
	ctx context.Context, r *pb.LeaseGrantRequest, opts ...grpc.CallOption,
) (*pb.LeaseGrantResponse, error) {
	reply, err := g.simConn.LeaseGrant(ctx, r, opts...)
	if r.TTL != g.seconds || stopped(g.heard) {
		return reply, err
	}
	close(g.granted)
	select {
	case <-g.heard:
	case <-ctx.Done():
	}
	return reply, err
}

// asks has the client ask a member next, and those after it then.
func (c *simConn) asks(m *simMember) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.turn = m.index + len(c.s.members) - 1
}

// A lease is of the term in which it was asked for: if its client hears of another leader before it
// hears of the lease, a renewal leaves that lease, which the earlier leader has in its books, and
// ends early.
//
// covers: X20
func TestLeaseThatIsHeardOfLate(t *testing.T) {
	for _, layout := range []Layout{Native, Etcdctl} {
		t.Run(string(layout), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimEtcd(1, simFaults{early: true})
				defer s.close()
				one, conn := s.client(0)
				two, _ := s.client(1)
				slow := &slowGrant{
					conn, leaseSeconds(simTTL), make(chan struct{}),
					make(chan struct{}),
				}
				one.Lease = clientv3.NewLeaseFromLeaseClient(slow, one, time.Second)
				cfg := Config{Layout: layout, RequestTimeout: time.Minute}
				b, other := on(t, one, cfg), on(t, two, cfg)
				defer func() { _, _, _, _ = b.Close(), other.Close(), one.Close(), two.Close() }()
				hold := claim("k")
				hold.TTL = simTTL
				told := make(chan error, 1)
				go func() {
					_, err := b.TryAcquire(t.Context(), hold)
					told <- err
				}()
				<-slow.granted
				time.Sleep(time.Second / 10) // for the shadow's lease
				old := s.pause()
				time.Sleep(simElection)
				s.elect(s.dice("election"))
				alive := s.members[old.index+1] // and so is the one after it
				conn.asks(alive)
				_, err := b.Identity(t.Context())
				want(t, "a request of the new term", err, nil)
				conn.asks(alive)
				close(slow.heard)
				want(t, "TryAcquire", <-told, nil)
				time.Sleep(simTTL / 2)
				conn.asks(alive)
				renewed := time.Now()
				want(t, "Renew", b.Renew(t.Context(), hold), nil)
				time.Sleep(simTTL - simTTL/6) // the lease would have ended, but for the new leader
				s.resume(old, s.dice("wake"))
				if len(s.revoked) == 0 {
					t.Fatal("nothing was revoked early: that shows nothing")
				}
				next := claim("k")
				next.TTL = simTTL
				if _, err = other.TryAcquire(t.Context(), next); err == nil {
					t.Errorf("another was granted the lock while its holder believes in it "+
						"for another %v",
						time.Until(renewed.Add(simTTL)))
				}
				want(t, "Renew", b.Renew(t.Context(), hold), nil)
				want(t, "Release", storetest.Release(t.Context(), b, hold), nil)
				acquired(t, other, next)
			})
		})
	}
}

// Claims that were made by a request which was sent twice, as a member hung, are released together.
// When that member goes on and makes the first copy, it makes no entry: nobody would ever remove
// it.
//
// covers: A4, X10
func TestManyWhoseFirstCopyComesLate(t *testing.T) {
	inPair(t, []Layout{Native, Etcdctl}, func(t *testing.T, p pair) {
		b, other, conn, s := p.other, p.b, p.conn, p.etcd
		alive, all := claim(key(t)), claims(t, 2)
		acquired(t, b, alive) // the lease is there, and goes on
		leader, hung, third := s.members[0], s.members[1], s.members[2]
		s.mu.Lock()
		s.quiet = true // what waits for a member is not dropped
		hung.paused = true
		s.mu.Unlock()
		conn.asks(hung)
		grants, err := b.TryAcquireAll(t.Context(), all)
		if err != nil || len(grants) != len(all) || !known(b, all[0]).putPending {
			t.Fatalf("TryAcquireAll by a second copy = %v, %v", grants, err)
		}
		conn.asks(third)
		released, err := b.TryReleaseAll(t.Context(), all)
		want(t, "TryReleaseAll", err, nil)
		for i, c := range all {
			if !released[i] { // then one by one
				conn.asks([]*simMember{third, leader}[i])
				want(t, "Release", storetest.Release(t.Context(), b, c), nil)
			}
		}
		s.resume(hung, s.dice("wake"))
		time.Sleep(2 * time.Second) // the first copy is made
		want(t, "Renew of the other hold", b.Renew(t.Context(), alive), nil)
		for _, c := range all {
			if state, err := other.Inspect(t.Context(), c.Key); err != nil ||
				len(state.Holders) > 0 {
				t.Errorf("after the release %s is held by %+v, %v", c.Key, state.Holders, err)
			}
		}
		grants, err = other.TryAcquireAll(t.Context(), afresh(all))
		if err != nil || len(grants) != len(all) {
			t.Errorf("by another: TryAcquireAll = %v, %v, want %d grants", grants, err, len(all))
		}
	})
}

// afresh is claims of others on the same keys.
func afresh(all []backend.Claim) (others []backend.Claim) {
	for _, c := range all {
		others = append(others, claim(c.Key))
	}
	return others
}
