package etcdbackend

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// The mark of a version that knows no run is heeded for as long as it is there; and this version
// leaves the same for it, for as long as it would have been.
func TestRunAmongVersions(t *testing.T) {
	srv := testserver.Etcd(t)
	b, client := tapped(t, srv.Addr(), func(*etcdserverpb.TxnRequest) {})
	name := key(t)
	p := b.scheme.paths(name)
	job := func(every time.Duration) backend.Claim {
		c := claim(name)
		c.NotBefore, c.NoneInFlight = every, true
		return c
	}
	run := func(every, ran time.Duration) {
		t.Helper()
		c := job(every)
		acquired(t, b, c)
		c.Ran = ran
		want(t, "release", storetest.Release(t.Context(), b, c), nil)
	}
	refused := func(every, most time.Duration) {
		t.Helper()
		var early *backend.EarlyError
		if _, err := b.TryAcquire(t.Context(), job(every)); !errors.As(err, &early) ||
			early.RetryAfter > most || early.RetryAfter < most-time.Minute {
			t.Errorf("a job of %v: %v, want that it is early for %v", every, err, most)
		}
	}
	within := func(key string, want time.Duration) {
		t.Helper()
		kv, err := client.Get(t.Context(), key)
		if err != nil || len(kv.Kvs) != 1 {
			t.Fatalf("%s: %v, %v", key, kv, err)
		}
		lease, err := client.TimeToLive(t.Context(), clientv3.LeaseID(kv.Kvs[0].Lease))
		if left := time.Duration(lease.TTL) * time.Second; err != nil || left > want ||
			left < want-time.Minute {
			t.Errorf("%s is there for %v, %v; want %v", key, left, err, want)
		}
	}
	run(time.Hour, 10*time.Minute)
	within(p.early(), 50*time.Minute)
	within(p.ran(), 2*time.Hour)
	refused(time.Hour, 50*time.Minute)

	lease, err := client.Grant(t.Context(), 1800) // by a version before, which ran it once more
	if err == nil {
		_, err = client.Put(t.Context(), p.early(), "", clientv3.WithLease(lease.ID))
	}
	want(t, "a mark of a version before", err, nil)
	refused(time.Second, 30*time.Minute+time.Second)
	refused(3*time.Hour, 30*time.Minute+time.Second)
	_, err = client.Revoke(t.Context(), lease.ID) // which is over
	want(t, "revoke", err, nil)
	refused(3*time.Hour, 2*time.Hour+50*time.Minute)
	run(time.Minute, 2*time.Minute)
	if kv, err := client.Get(t.Context(), p.early()); err != nil || len(kv.Kvs) > 0 {
		t.Errorf("a run that took longer than its time keeps a version before from "+
			"running it: %v, %v", kv, err)
	}
	_, err = client.Put(t.Context(), p.ran(), "x")
	want(t, "damage", err, nil)
	_, err = b.TryAcquire(t.Context(), job(time.Second))
	want(t, "a job whose mark is damaged", err, backend.ErrForeign)
}
