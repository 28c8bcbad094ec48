package etcdbackend

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A comparing connection has something happen right before its next transaction that compares.
type comparing struct {
	*simConn
	meanwhile func()
}

func (c *comparing) Txn(
	ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption,
) (*pb.TxnResponse, error) {
	if f := c.meanwhile; f != nil && len(r.Compare) > 0 {
		c.meanwhile = nil
		f()
	}
	return c.simConn.Txn(ctx, r, opts...)
}

// A slowKeepAlive is the leases of a client whose keepalives are on their way until they are to
// arrive.
type slowKeepAlive struct {
	*simConn
	sent   chan struct{} // has something in its one slot when one was sent
	arrive chan struct{} // closed to let them arrive
}

func (k *slowKeepAlive) LeaseKeepAlive(
	ctx context.Context, opts ...grpc.CallOption,
) (pb.Lease_LeaseKeepAliveClient, error) {
	select {
	case k.sent <- struct{}{}:
	default:
	}
	select {
	case <-k.arrive:
		return k.simConn.LeaseKeepAlive(ctx, opts...)
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// A pair is two clients of a simulated cluster. A test may put something between the second one and
// the cluster.
type pair struct {
	etcd     *simEtcd
	b, other *Backend
	conn     *simConn // of other
}

// inPair makes a pair, in a bubble, for each of the layouts.
func inPair(t *testing.T, layouts []Layout, test func(t *testing.T, p pair)) {
	t.Helper()
	for _, layout := range layouts {
		t.Run(string(layout), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimEtcd(1, simFaults{})
				defer s.close()
				one, _ := s.client(0)
				two, conn := s.client(1)
				defer func() { _, _ = one.Close(), two.Close() }()
				b, other := on(t, one, Config{Layout: layout}), on(t, two, Config{Layout: layout})
				defer func() { _, _ = b.Close(), other.Close() }()
				test(t, pair{s, b, other, conn})
			})
		})
	}
}

// Of two readers, or of two with a permit, the later one's hold is over. Its token proves nothing
// from then on, although the earlier one, whose token is lower, goes on to hold.
//
// covers: K4, K5
func TestProofIsOfItsOwnHold(t *testing.T) {
	ends := map[string]func(t *testing.T, s *simEtcd, b *Backend, c backend.Claim){
		"its lease is revoked": func(_ *testing.T, s *simEtcd, b *Backend, c backend.Claim) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.revoke(int64(known(b, c).lease.id))
		},
		"released": func(t *testing.T, _ *simEtcd, b *Backend, c backend.Claim) {
			want(t, "Release", storetest.Release(t.Context(), b, c), nil)
		},
	}
	for _, mode := range []backend.Mode{backend.Shared, backend.Permit} {
		for how, end := range ends {
			t.Run(mode.String()+"/"+how, func(t *testing.T) {
				inPair(t, []Layout{Native}, func(t *testing.T, p pair) {
					b, other := p.b, p.other
					first, second := claim("k"), claim("k")
					first.Mode, second.Mode = mode, mode
					// The tokens of both are by a counter, one after the other.
					first.MinToken = 1 << 40
					if mode == backend.Permit {
						first.Limit, second.Limit = 2, 2
					}
					lower, token := acquired(t, b, first).Token, acquired(t, other, second).Token
					if lower >= token {
						t.Fatalf("tokens %d and %d: this test shows nothing", lower, token)
					}
					before, err := other.Proof(t.Context(), "k", token)
					want(t, "Proof", err, nil)
					end(t, p.etcd, other, second)
					_, err = other.Proof(t.Context(), "k", token)
					want(t, "Proof of a hold that is over", err, backend.ErrLost)
					reply, err := other.client.Txn(t.Context()).If(before).Commit()
					if err != nil || reply.Succeeded {
						t.Errorf("the proof from before: %v, %v", reply, err)
					}
					_, err = b.Proof(t.Context(), "k", lower)
					want(t, "Proof of the hold that goes on", err, nil)
				})
			})
		}
	}
}

// A hold that another client renews, which does not know how many tokens it has reserved, keeps
// them all: each proves it, and the next hold has a higher one.
//
// covers: K7
func TestReservedTokensOfAnAdoptedHold(t *testing.T) {
	const raised, reserved = 1 << 40, 8
	inPair(t, []Layout{Native}, func(t *testing.T, p pair) {
		c := claim("k")
		c.Reserve = reserved
		acquired(t, p.b, c)
		c.Reserve, c.MinToken = 0, raised
		want(t, "Renew", p.other.Renew(t.Context(), c), nil)
		for token, told := range map[uint64]error{
			raised + reserved - 1: nil,
			raised + reserved:     backend.ErrLost,
		} {
			_, err := p.other.Proof(t.Context(), "k", token)
			want(t, "Proof", err, told)
		}
		want(t, "Release", storetest.Release(t.Context(), p.other, c), nil)
		if g := acquired(t, p.other, claim("k")); g.Token < raised+reserved {
			t.Errorf("token %d after %d were reserved from %d on", g.Token, reserved,
				uint64(raised))
		}
	})
}

// One client renews a hold that another one made. Before it writes, that one has released the hold,
// and has made another claim of the same lock, whose entry has the same name: the renewal is told
// of the loss, and the new hold stays as it is.
//
// covers: B4, B8
func TestRenewalOfANameThatIsUsedAgain(t *testing.T) {
	inPair(t, []Layout{Native, Etcdctl}, func(t *testing.T, p pair) {
		b, other, between := p.b, p.other, &comparing{simConn: p.conn}
		other.client.KV = clientv3.NewKVFromKVClient(between, other.client)
		hold, next := claim("k"), claim("k")
		hold.NoneInFlight = true // no tombstone
		token := acquired(t, b, hold).Token
		name := known(b, hold).key
		between.meanwhile = func() {
			want(t, "Release", storetest.Release(t.Context(), b, hold), nil)
			if g := acquired(t, b, next); g.Token <= token || known(b, next).key != name {
				t.Fatalf("the next entry is %q, not %q: this test shows nothing",
					known(b, next).key, name)
			}
		}
		err := other.Renew(t.Context(), hold)
		if between.meanwhile != nil {
			t.Fatal("it was not written: this test shows nothing")
		}
		if !errors.Is(err, backend.ErrLost) {
			t.Errorf("Renew of a hold that is over, beside the next one = %v, want %v", err,
				backend.ErrLost)
		}
		want(t, "Renew by the next", b.Renew(t.Context(), next), nil)
		want(t, "Release by the next", storetest.Release(t.Context(), b, next), nil)
	})
}

// A waiter asks again, and is granted the lock while the keepalive for that request is on its way:
// the grant counts from the request before, and is on another lease. So nobody tells it then that
// it waits: it would count the grant from the later request.
//
// covers: A6, W7
func TestGrantedBeforeTheKeepaliveIsAnswered(t *testing.T) {
	for verb, told := range map[string]error{"Heartbeat": backend.ErrLost, "TryAcquire": nil} {
		t.Run(verb, func(t *testing.T) {
			inPair(t, []Layout{Native, Etcdctl}, func(t *testing.T, p pair) {
				b, other := p.b, p.other
				slow := &slowKeepAlive{p.conn, make(chan struct{}, 1), make(chan struct{})}
				other.client.Lease = clientv3.NewLeaseFromLeaseClient(slow, other.client,
					time.Second)
				holder, next := claim("k"), inLine("k")
				next.TTL, next.WaiterTTL = 2*time.Second, 3*time.Second
				acquired(t, b, holder)
				wake, err := other.Watch(t.Context(), next)
				want(t, "Watch", err, nil)
				enqueued(t, other, next, 1)
				time.Sleep(time.Second / 2)
				answer := make(chan error, 1)
				go func() {
					if verb == "TryAcquire" {
						_, err := other.TryAcquire(t.Context(), next)
						answer <- err
						return
					}
					answers, err := other.Heartbeat(t.Context(), []backend.Claim{next})
					answer <- errors.Join(append(answers, err)...)
				}()
				<-slow.sent
				want(t, "Release", storetest.Release(t.Context(), b, holder), nil)
				for limit, granted := time.After(simTTL), false; !granted; {
					select {
					case w := <-wake:
						granted = w.Granted
					case <-limit:
						t.Fatal("not woken with the grant")
					}
				}
				close(slow.arrive)
				if err := <-answer; !errors.Is(err, told) {
					t.Errorf("%s that is answered after the grant = %v, want %v", verb, err, told)
				}
				lc := known(other, next)
				other.mu.Lock()
				defer other.mu.Unlock()
				if !lc.holds() {
					t.Error("the client takes what it was granted for a claim that waits")
				}
			})
		})
	}
}
