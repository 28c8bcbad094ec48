package etcdbackend

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A busy lock uses the same keys again: etcd scans those that were deleted until it is compacted,
// so each acquisition would be slower than the one before.
func TestKeysAreUsedAgain(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b := on(t, c, Config{})
	name := key(t)
	p := b.scheme.paths(name)
	var used []string
	for i := range 30 {
		one, two := claim(name), inLine(name)
		two.NoneInFlight, one.NoneInFlight = true, i%3 > 0
		acquired(t, b, one)
		_, err := b.TryAcquire(t.Context(), two)
		want(t, "to be queued", err, backend.ErrHeld)
		_, err = b.TryAcquire(t.Context(), claim(name))
		want(t, "another", err, backend.ErrHeld)
		reply, err := c.Get(t.Context(), p.queue, prefixOnly[:1]...)
		want(t, "get", err, nil)
		for _, kv := range reply.Kvs {
			if !strings.HasPrefix(string(kv.Key), p.shadows()) {
				used = append(used, string(kv.Key))
			}
		}
		want(t, "release", storetest.Release(t.Context(), b, one), nil)
		acquired(t, b, two)
		want(t, "release", storetest.Release(t.Context(), b, two), nil)
	}
	distinct := map[string]bool{}
	for _, k := range used {
		distinct[k] = true
	}
	if len(used) != 60 || len(distinct) > 3 {
		t.Errorf("%d entries had %d keys, want 3 at most", len(used), len(distinct))
	}
	if len(b.claims) > 0 {
		t.Errorf("%d claims are remembered", len(b.claims))
	}
}

// A slot whose last attempt was not answered is not used again: the attempt may yet make its
// entry.
//
// covers: A4, C2
func TestLooseSlotIsRetired(t *testing.T) {
	srv := testserver.Etcd(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	b, other := opened(t, at(proxy.Addr())), opened(t, at(srv.Addr()))
	warm := claim(key(t))
	acquired(t, b, warm)
	want(t, "release", storetest.Release(t.Context(), b, warm), nil)
	late, name := claim(key(t)), ""
	name = late.Key
	proxy.Set(testserver.Fault{Mode: testserver.Hold, Match: testserver.Containing(name)})
	_, err := b.TryAcquire(quick(t, patience/40), late)
	if backend.AnswerOf(err) != backend.Unknown {
		t.Fatalf("TryAcquire that is held up = %v", err)
	}
	b.mu.Lock()
	slot := b.claims[b.scheme.paths(name).topic(late.ID())].slot
	b.mu.Unlock()
	late.NoneInFlight = true // as a caller says who counts what it sent itself
	released := make(chan error, 1)
	go func() { released <- storetest.Release(t.Context(), b, late) }()
	proxy.Pass()
	if err := <-released; backend.AnswerOf(err) == backend.No && backend.Refused(err) {
		t.Errorf("Release = %v", err)
	}
	eventually(t, "nothing to be left", func() error {
		free := claim(name)
		free.NoneInFlight = true
		if _, err := other.TryAcquire(t.Context(), free); err != nil {
			return err
		}
		return storetest.Release(t.Context(), other, free)
	})
	for range 5 {
		next := claim(key(t))
		acquired(t, b, next)
		b.mu.Lock()
		again := b.claims[b.scheme.paths(next.Key).topic(next.ID())].slot
		b.mu.Unlock()
		if again == slot {
			t.Fatalf("slot %q is used again", slot)
		}
	}
}

// A deletion that is made once more, and late, does not find the next claim's entry, although that
// has the same key.
//
// covers: A4, C2
func TestLateDeletion(t *testing.T) {
	srv := testserver.Etcd(t)
	var last atomic.Pointer[etcdserverpb.TxnRequest]
	b, c := tapped(t, srv.Addr(), func(txn *etcdserverpb.TxnRequest) { last.Store(txn) })
	one, next := claim(key(t)), claim("")
	one.NoneInFlight, next.Key = true, one.Key
	acquired(t, b, one)
	entryKey := func(c backend.Claim) string {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.claims[b.scheme.paths(c.Key).topic(c.ID())].key
	}
	was := entryKey(one)
	want(t, "release", storetest.Release(t.Context(), b, one), nil)
	deletion := last.Load()
	acquired(t, b, next)
	if now := entryKey(next); now != was {
		t.Fatalf("the next entry is %q, not %q: this test shows nothing", now, was)
	}
	_, err := etcdserverpb.NewKVClient(c.ActiveConnection()).Txn(t.Context(), deletion)
	want(t, "the same deletion again", err, nil)
	want(t, "renew by the next", b.Renew(t.Context(), next), nil)
	want(t, "release by the next", storetest.Release(t.Context(), b, next), nil)
}

// Claims are released while their lease is kept alive for another, and what has ended is removed
// from it: a release is not taken for such an end, and finds its hold.
//
// covers: B5, G5
func TestReleaseBesideKeepalives(t *testing.T) {
	srv := testserver.Etcd(t)
	b := opened(t, at(srv.Addr())+"?request_timeout=15s")
	ttl := slackFrom - time.Second // no slack: each renewal is a keepalive
	alive := claim(key(t))
	alive.TTL = ttl
	acquired(t, b, alive)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			// A machine that stands still gives no answer.
			if err := b.Renew(t.Context(), alive); backend.AnswerOf(err) == backend.No {
				t.Errorf("Renew = %v", err)
				return
			}
		}
	}()
	for range 400 {
		c := claim(key(t))
		c.TTL = ttl
		sent := time.Now()
		_, err := b.TryAcquire(t.Context(), c)
		if err == nil {
			_, err = b.Release(t.Context(), c)
		}
		if err != nil && time.Since(sent) < ttl {
			t.Fatalf("acquired and released within %v: %v", time.Since(sent), err)
		}
	}
	close(stop)
	<-stopped
}
