package etcdbackend

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

// A breaking connection is to members that make each transaction. What is in its one slot is told
// instead of the next answer.
type breaking struct {
	*simConn
	broken chan error
}

func (c *breaking) Txn(
	ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption,
) (*pb.TxnResponse, error) {
	reply, err := c.simConn.Txn(ctx, r, opts...)
	select {
	case broken := <-c.broken:
		return nil, broken
	default:
		return reply, err
	}
}

// A member that was reached and is unavailable then may have executed the request: the connection
// broke before the answer, or the leader was replaced when the request was in its log. So that is
// no refusal:
// the request is made again, and a release that finds nothing then is not the loss of a good hold.
//
// covers: A2, C4
func TestUnavailableIsNoRefusal(t *testing.T) {
	for name, broken := range map[string]error{
		"connection": status.Error(codes.Unavailable, "error reading from server: EOF"),
		"leader":     rpctypes.ErrGRPCTimeoutDueToLeaderFail,
		"member":     rpctypes.ErrGRPCTimeoutDueToConnectionLost,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimEtcd(1, simFaults{})
				defer s.close()
				c, conn := s.client(0)
				defer func() { _ = c.Close() }()
				breaks := &breaking{conn, make(chan error, 1)}
				c.KV = clientv3.NewKVFromKVClient(breaks, c)
				b := on(t, c, Config{})
				defer func() { _ = b.Close() }()
				unknown := func(what string, request func() error) {
					t.Helper()
					breaks.broken <- broken
					if err := request(); len(breaks.broken) > 0 ||
						backend.AnswerOf(err) != backend.Unknown {
						t.Errorf("%s = %v, want that nobody knows", what, err)
					}
				}
				hold, waiter := claim("k"), inLine("k")
				for _, c := range []backend.Claim{hold, waiter} { // the lock is free for the first
					unknown("TryAcquire", func() error {
						_, err := b.TryAcquire(t.Context(), c)
						return err
					})
				}
				acquired(t, b, hold)
				enqueued(t, b, waiter, 1)
				for _, c := range []backend.Claim{hold, waiter} { // which is let in
					release := func() error { return storetest.Release(t.Context(), b, c) }
					unknown("Release", release)
					want(t, "Release of what is over", release(), backend.ErrLost)
				}

				cfg := locker.Config{TTL: simTTL, Logger: slog.New(slog.DiscardHandler)}
				l, err := locker.New(b, locker.Bare, cfg)
				want(t, "locker", err, nil)
				defer func() { _ = l.Close() }()
				one, err := l.TryLock(t.Context(), "one")
				want(t, "TryLock", err, nil)
				breaks.broken <- broken
				if err := one.Unlock(); err != nil {
					t.Errorf("Unlock of a good hold = %v", err)
				}
				breaks.broken <- broken
				if two, err := l.TryLock(t.Context(), "two"); err != nil {
					t.Errorf("TryLock of a free lock = %v", err)
				} else {
					want(t, "Unlock", two.Unlock(), nil)
				}
			})
		})
	}
}

// Of two who waited, the first is let in, and an earlier leader ends its lease. What is left of the
// hold keeps the place of the first in the queue, although it was written when the second was in
// it: the second is not let in before the first's deadline.
//
// covers: X20
func TestEarlyEndOfWhoWaited(t *testing.T) {
	inPair(t, []Layout{Native, Etcdctl}, func(t *testing.T, p pair) {
		b, other, s := p.b, p.other, p.etcd
		before, first, second := claim("k"), inLine("k"), inLine("k")
		first.TTL, first.WaiterTTL = simTTL, simTTL
		acquired(t, other, before)
		enqueued(t, b, first, 1)
		enqueued(t, other, second, 2)
		want(t, "Release", storetest.Release(t.Context(), other, before), nil)
		began := time.Now()
		g := acquired(t, b, first)
		s.endEarly(b, first)
		grantedAfter(t, other, second, began.Add(g.TTL))
		want(t, "Renew of the first", b.Renew(t.Context(), first), backend.ErrLost)
	})
}

// A halfHeard connection is to a member that makes a transaction, and whose answer is lost, and to
// another that refuses it.
type halfHeard struct {
	*simConn
	refusal error
	asked   int // while there is a refusal
}

func (c *halfHeard) Txn(
	ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption,
) (*pb.TxnResponse, error) {
	if c.refusal == nil {
		return c.simConn.Txn(ctx, r, opts...)
	}
	if c.asked++; c.asked > 1 {
		return nil, c.refusal
	}
	if _, err := c.simConn.Txn(ctx, r, opts...); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

// A request that was not answered is made again, and that copy is refused: nobody says that nothing
// was done, as the first copy was.
//
// covers: A2, C4
func TestRefusalAfterACopy(t *testing.T) {
	verbs := map[string]func(t *testing.T, b *Backend, c backend.Claim) error{
		"TryAcquire": func(t *testing.T, b *Backend, c backend.Claim) error {
			_, err := b.TryAcquire(t.Context(), c)
			return err
		},
		"TryAcquireAll": func(t *testing.T, b *Backend, c backend.Claim) error {
			_, err := b.TryAcquireAll(t.Context(), []backend.Claim{c})
			return err
		},
		"Renew": func(t *testing.T, b *Backend, c backend.Claim) error {
			return b.Renew(t.Context(), saving(c, "saved"))
		},
		"Release": func(t *testing.T, b *Backend, c backend.Claim) error {
			return storetest.Release(t.Context(), b, c)
		},
	}
	for name, verb := range verbs {
		for _, refusal := range []error{
			rpctypes.ErrGRPCRequestTooManyRequests, rpctypes.ErrGRPCNoSpace,
			rpctypes.ErrGRPCPermissionDenied,
		} {
			t.Run(name+" and "+status.Convert(refusal).Message(), func(t *testing.T) {
				inPair(t, []Layout{Native}, func(t *testing.T, p pair) {
					b, kv := p.other, &halfHeard{simConn: p.conn}
					b.client.KV = clientv3.NewKVFromKVClient(kv, b.client)
					before, c := claim(key(t)), claim(key(t))
					acquired(t, b, before) // the leases are there
					if name == "Renew" || name == "Release" {
						acquired(t, b, c)
					}
					kv.refusal = refusal
					err := verb(t, b, c)
					if kv.asked != 2 || backend.AnswerOf(err) != backend.Unknown {
						t.Errorf("%d requests: %v, want that nobody knows", kv.asked, err)
					}
					kv.refusal = nil
					want(t, "Release", storetest.Release(t.Context(), b, before), nil)
				})
			})
		}
	}
}
