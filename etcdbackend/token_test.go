package etcdbackend

import (
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// least is a claim that asks for a token of so long from now.
func least(key string, ahead time.Duration) backend.Claim {
	c := claim(key)
	c.TTL = time.Hour
	c.MinToken = uint64(time.Now().Add(ahead).UnixMicro())
	return c
}

// Between the read of a counter and the write that counts on, somebody else holds with a higher
// token and is gone again.
//
// covers: K3, G3
func TestCounterIsCompared(t *testing.T) {
	srv := testserver.Etcd(t)
	var armed atomic.Bool
	var meanwhile func()
	b, c := tapped(t, srv.Addr(), func(*etcdserverpb.TxnRequest) {
		if armed.CompareAndSwap(true, false) {
			meanwhile()
		}
	})
	other := opened(t, at(srv.Addr()))
	key := key(t)
	want(t, "Release", storetest.Release(t.Context(), b, held(t, b, least(key, 0))), nil)

	var between uint64
	meanwhile = func() {
		ahead := least(key, 10*time.Minute)
		between = acquired(t, other, ahead).Token
		ahead.NoneInFlight = true
		want(t, "Release", storetest.Release(t.Context(), other, ahead), nil)
	}
	armed.Store(true)
	mine := least(key, 0)
	if g := acquired(t, b, mine); g.Token <= between || between == 0 {
		t.Errorf("token %d after %d", g.Token, between)
	}
	reply, err := c.Get(t.Context(), b.scheme.paths(key).counter())
	if err != nil || len(reply.Kvs) != 1 || reply.Kvs[0].Lease == 0 {
		t.Fatalf("the counter is %v, %v; want it on a lease, or it stays for ever", reply, err)
	}
	left, err := c.TimeToLive(t.Context(), clientv3.LeaseID(reply.Kvs[0].Lease))
	if err != nil || left.TTL < int64(counterTime/time.Second) {
		t.Errorf("the counter is there for %d s, %v", left.TTL, err)
	}

	// Without its lease the counter is gone, and clocks are what is left.
	_, err = c.Revoke(t.Context(), clientv3.LeaseID(reply.Kvs[0].Lease))
	want(t, "Revoke", err, nil)
	want(t, "Release", storetest.Release(t.Context(), b, mine), nil)
	if g := acquired(t, b, least(key, 12*time.Minute)); g.Token <= between {
		t.Errorf("token %d after %d", g.Token, between)
	}
}

// held acquires c and returns it.
func held(t *testing.T, b *Backend, c backend.Claim) backend.Claim {
	t.Helper()
	acquired(t, b, c)
	return c
}

// A counter that was written by something else is not counted on.
//
// covers: I6
func TestForeignCounter(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b := on(t, c, Config{})
	key := key(t)
	_, err := c.Put(t.Context(), b.scheme.paths(key).counter(), "-1")
	want(t, "Put", err, nil)
	_, err = b.TryAcquire(t.Context(), least(key, 0))
	want(t, "TryAcquire", err, backend.ErrForeign)
}
