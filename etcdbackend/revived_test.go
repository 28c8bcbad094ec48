package etcdbackend

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A stalledKV is the requests of a client of which one waits until it is told to go on.
type stalledKV struct {
	*simConn
	stalls  func(req any) bool // whether it is this one; nil if none is to; guarded by simEtcd.mu
	stalled chan struct{}      // closed when it waits
	goOn    chan struct{}
}

// stall has the next request that fits wait.
func (kv *stalledKV) stall(fits func(req any) bool) {
	kv.s.mu.Lock()
	defer kv.s.mu.Unlock()
	kv.stalls = fits
}

func (kv *stalledKV) wait(req any) {
	kv.s.mu.Lock()
	now := kv.stalls != nil && kv.stalls(req)
	if now {
		kv.stalls = nil
	}
	kv.s.mu.Unlock()
	if now {
		close(kv.stalled)
		<-kv.goOn
	}
}

func (kv *stalledKV) Range(
	ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption,
) (*pb.RangeResponse, error) {
	kv.wait(r)
	return kv.simConn.Range(ctx, r, opts...)
}

func (kv *stalledKV) Txn(
	ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption,
) (*pb.TxnResponse, error) {
	kv.wait(r)
	return kv.simConn.Txn(ctx, r, opts...)
}

// inPairStalled is inPair with a client whose requests may be stalled, and another.
func inPairStalled(t *testing.T, test func(t *testing.T, b, other *Backend, kv *stalledKV)) {
	t.Helper()
	inPair(t, []Layout{Native, Etcdctl}, func(t *testing.T, p pair) {
		kv := &stalledKV{simConn: p.conn, stalled: make(chan struct{}), goOn: make(chan struct{})}
		p.other.client.KV = clientv3.NewKVFromKVClient(kv, p.other.client)
		test(t, p.other, p.b, kv)
	})
}

// A waiter that was silent for its WaiterTTL comes back, and is let in, after its entry was found
// to be one that nobody believes in, and before it is looked for to be removed: then it stays.
//
// covers: B3, B8, A4
func TestBackBeforeTheLook(t *testing.T) {
	const ttl = slackFrom - time.Second // no slack: each renewal is a keepalive
	inPairStalled(t, func(t *testing.T, b, other *Backend, kv *stalledKV) {
		holder, alive := claim(key(t)), claim(key(t))
		waiter := inLine(holder.Key)
		alive.TTL, waiter.TTL, waiter.WaiterTTL = ttl, ttl, ttl // so they share a lease
		acquired(t, other, holder)
		acquired(t, b, alive)
		enqueued(t, b, waiter, 1)
		entry := known(b, waiter).key
		kv.stall(func(req any) bool { // the look
			r, ok := req.(*pb.RangeRequest)
			return ok && string(r.Key) == entry && len(r.RangeEnd) == 0
		})
		time.Sleep(ttl * 4 / 5)
		want(t, "Renew of the other hold", b.Renew(t.Context(), alive), nil)
		want(t, "Release", storetest.Release(t.Context(), other, holder), nil) // its turn has come
		time.Sleep(ttl * 2 / 5)
		want(t, "Renew of the other hold", b.Renew(t.Context(), alive), nil)
		<-kv.stalled
		_, err := b.TryAcquire(t.Context(), waiter)
		want(t, "TryAcquire when it is back", err, nil)
		close(kv.goOn)
		time.Sleep(time.Second) // for the look, and the deletion
		_, err = other.TryAcquire(t.Context(), claim(holder.Key))
		want(t, "TryAcquire by another, beside who was told that it holds", err, backend.ErrHeld)
		want(t, "Renew", b.Renew(t.Context(), waiter), nil)
		want(t, "Release of what was let in", storetest.Release(t.Context(), b, waiter), nil)
	})
}

// A waiter's turn is proven, for its WaiterTTL, between the read and the write of its own attempt,
// which is then not made. The attempt is granted a TTL only when its entry is on a lease that is as
// long.
//
// covers: B3, W6
func TestProofBetweenReadAndWrite(t *testing.T) {
	const waiterTTL = 3 * time.Second
	inPairStalled(t, func(t *testing.T, b, other *Backend, kv *stalledKV) {
		holder := claim(key(t))
		waiter := inLine(holder.Key)
		waiter.WaiterTTL = waiterTTL
		acquired(t, other, holder)
		enqueued(t, b, waiter, 1)
		wake, err := b.Watch(t.Context(), waiter) // it has not read the queue when the holder goes
		want(t, "Watch", err, nil)
		want(t, "Release", storetest.Release(t.Context(), other, holder), nil)
		kv.stall(func(req any) bool { // the write
			r, ok := req.(*pb.TxnRequest)
			return ok && len(r.Compare) > 0
		})
		answer := make(chan backend.Grant, 1)
		go func() {
			defer close(answer)
			g, err := b.TryAcquire(t.Context(), waiter)
			if err != nil {
				t.Errorf("TryAcquire = %v", err)
			}
			answer <- g
		}()
		<-kv.stalled
		_, err = b.Heartbeat(t.Context(), []backend.Claim{waiter}) // finds whose turn it is
		want(t, "Heartbeat", err, nil)
		for w := range wake {
			if w.Granted {
				break
			}
		}
		close(kv.goOn)
		g := <-answer
		if g.TTL < waiter.TTL {
			t.Fatalf("TryAcquire = %+v", g)
		}
		time.Sleep(3 * waiterTTL) // before the first renewal
		_, err = other.TryAcquire(t.Context(), claim(holder.Key))
		want(t, "TryAcquire by another, beside who was granted its TTL", err, backend.ErrHeld)
		want(t, "Renew", b.Renew(t.Context(), waiter), nil)
		want(t, "Release of what was granted", storetest.Release(t.Context(), b, waiter), nil)
	})
}
