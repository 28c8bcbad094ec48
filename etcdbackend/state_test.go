package etcdbackend

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func saving(c backend.Claim, state string) backend.Claim {
	c.Save = []byte(state)
	return c
}

// stored is the state of a lock that is free.
func stored(t *testing.T, b *Backend, key string) string {
	t.Helper()
	c := claim(key)
	c.Load, c.NoneInFlight = true, true
	g := acquired(t, b, c)
	want(t, "release", storetest.Release(t.Context(), b, c), nil)
	return string(g.State)
}

// A request to save that was not answered is made again by the backend itself, and the first one
// may be executed at any time later. It must not bring back the older state.
//
// covers: A2, A3
func TestLateSave(t *testing.T) {
	srv := testserver.Etcd(t)
	var early atomic.Pointer[etcdserverpb.TxnRequest]
	b, c := tapped(t, srv.Addr(), func(txn *etcdserverpb.TxnRequest) {
		if strings.Contains(txn.String(), "early") {
			early.CompareAndSwap(nil, txn)
		}
	})
	lock := claim(key(t))
	acquired(t, b, lock)
	want(t, "Renew", b.Renew(t.Context(), saving(lock, "early")), nil)
	want(t, "Renew", b.Renew(t.Context(), saving(lock, "newer")), nil)
	reply, err := etcdserverpb.NewKVClient(c.ActiveConnection()).Txn(t.Context(), early.Load())
	want(t, "the same request again", err, nil)
	want(t, "Release", storetest.Release(t.Context(), b, lock), nil)
	if got := stored(t, b, lock.Key); reply.Succeeded || got != "newer" {
		t.Errorf("the late request was executed: %v, and %q is stored", reply.Succeeded, got)
	}
}

// A claim that is let in while it leaves the queue did not hold when it looked, and holds when it
// is deleted: it has saved nothing, so the answer is neither yes nor, as it held, that it did not.
//
// covers: W11
func TestSaveWhileLetIn(t *testing.T) {
	srv := testserver.Etcd(t)
	other := opened(t, at(srv.Addr()))
	holder := claim(key(t))
	var leaving atomic.Bool
	b, _ := tapped(t, srv.Addr(), func(*etcdserverpb.TxnRequest) {
		if leaving.CompareAndSwap(true, false) {
			want(t, "release by the holder", storetest.Release(context.Background(), other,
				saving(holder, "the holder's")), nil)
		}
	})
	acquired(t, other, holder)
	waiter := inLine(holder.Key)
	_, err := b.TryAcquire(t.Context(), waiter)
	want(t, "TryAcquire in the queue", err, backend.ErrHeld)
	leaving.Store(true)
	if _, err := b.Release(t.Context(),
		saving(waiter, "the waiter's")); backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("Release with Save by a claim that was let in meanwhile = %v, want an "+
			"unknown answer", err)
	}
	want(t, "Release again", storetest.Release(t.Context(), b, saving(waiter, "the waiter's")),
		backend.ErrLost)
	if got := stored(t, b, holder.Key); got != "the holder's" {
		t.Errorf("%q is stored", got)
	}
}

// A release that saves and never arrived may be made again until the claim's lease is over:
// meanwhile nobody removes the entry, or what is made again would find it gone, and be taken for
// saved.
//
// covers: A2, C4
func TestSaveThatNeverArrived(t *testing.T) {
	srv := testserver.Etcd(t)
	ctx, cancel := context.WithCancel(t.Context())
	var releasing atomic.Bool
	b, _ := tapped(t, srv.Addr(), func(*etcdserverpb.TxnRequest) {
		if releasing.Load() {
			cancel() // before it is sent
		}
	})
	lock := claim(key(t))
	lock.NoneInFlight = true
	acquired(t, b, lock)
	releasing.Store(true)
	if _, err := b.Release(ctx, saving(lock, "once")); backend.AnswerOf(err) != backend.Unknown {
		t.Fatalf("Release that was not sent = %v", err)
	}
	releasing.Store(false)
	b.mu.Lock()
	l := b.claims[b.scheme.paths(lock.Key).topic(lock.ID())].lease
	b.mu.Unlock()
	want(t, "a keepalive", b.lasting(t.Context(), l, time.Now(), l.ttl), nil)
	b.tasks.Wait() // for what it has removed
	want(t, "Release again", storetest.Release(t.Context(), b, saving(lock, "once")), nil)
	if got := stored(t, b, lock.Key); got != "once" {
		t.Errorf("%q is stored", got)
	}
}

// Loading costs no request, and saving no Raft entry but that of the release, or one for a
// renewal.
func TestStateCosts(t *testing.T) {
	srv := testserver.Etcd(t)
	var requests atomic.Int64
	b, c := tapped(t, srv.Addr(), func(*etcdserverpb.TxnRequest) { requests.Add(1) })
	index := func() uint64 {
		status, err := c.Status(t.Context(), srv.Addr())
		want(t, "status", err, nil)
		return status.RaftIndex
	}
	name := key(t)
	cycle := func() {
		lock := claim(name)
		lock.Load, lock.NoneInFlight, lock.TTL = true, true, time.Minute
		acquired(t, b, saving(lock, "ignored"))
		want(t, "Renew", b.Renew(t.Context(), saving(lock, "1")), nil)
		b.mu.Lock()
		if h := b.claims[b.scheme.paths(name).topic(lock.ID())]; h == nil || h.claim.Save != nil {
			t.Error("the client does not know its hold, or keeps what it saved")
		}
		b.mu.Unlock()
		want(t, "Release", storetest.Release(t.Context(), b, saving(lock, "2")), nil)
	}
	cycle() // makes the lease
	const cycles = 20
	before, sent := index(), requests.Load()
	for range cycles {
		cycle()
	}
	if n, m := index()-before, requests.Load()-sent; n > 3*cycles+2 || m != 3*cycles {
		t.Errorf("%d cycles took %d Raft entries and %d requests, want 3 each", cycles, n, m)
	}
}
