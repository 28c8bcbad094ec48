package etcdbackend

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func claims(t *testing.T, n int) (all []backend.Claim) {
	t.Helper()
	for i := range n {
		c := claim(fmt.Sprint(key(t), i))
		c.NoneInFlight = true
		all = append(all, c)
	}
	return all
}

// Fifty free keys are one write, and so is their release.
//
// covers: B1
func TestOneWriteOfMany(t *testing.T) {
	for _, layout := range []Layout{Native, Etcdctl} {
		t.Run(string(layout), func(t *testing.T) {
			srv := testserver.Etcd(t)
			var sent atomic.Int64
			b, c := tap{before: func(req any) {
				if _, txn := req.(*etcdserverpb.TxnRequest); txn {
					sent.Add(1)
				}
			}}.through(t, srv.Addr(), Config{Layout: layout})
			all := claims(t, b.scheme.maxTogether())
			acquired(t, b, claim(key(t))) // the lease is there
			before, err := c.Get(t.Context(), "any")
			want(t, "Get", err, nil)
			sent.Store(0)
			grants, err := b.TryAcquireAll(t.Context(), all)
			if err != nil || len(grants) != len(all) {
				t.Fatalf("TryAcquireAll = %d grants, %v, want %d", len(grants), err, len(all))
			}
			if released, err := b.TryReleaseAll(t.Context(), all); err != nil ||
				slices.Contains(released, false) {
				t.Errorf("TryReleaseAll = %v, %v", released, err)
			}
			after, err := c.Get(t.Context(), "any")
			if n := after.Header.Revision - before.Header.Revision; err != nil || n != 2 ||
				sent.Load() != 2 {
				t.Errorf("%d writes by %d transactions, %v, want 2 by 2", n, sent.Load(), err)
			}
			if len(b.claims) != 1 {
				t.Errorf("%d claims are remembered, want the first", len(b.claims))
			}
		})
	}
}

// A request for many that is made again, as a member did not answer, is not made: the first one
// was. Nobody is told that there is nothing of them in etcd, or that they were lost.
//
// covers: B8, C2
func TestManyThatAreMadeAgain(t *testing.T) {
	b, c, lost := losing(t)
	acquired(t, b, claim(key(t))) // the lease is there
	all := claims(t, 3)
	lost.Store(true)
	if grants, err := b.TryAcquireAll(t.Context(), all); lost.Load() ||
		backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("TryAcquireAll = %v, %v, want that nobody knows", grants, err)
	}
	for _, held := range all {
		held.NoneInFlight = false
		want(t, "Release of what the first request took", storetest.Release(t.Context(), b, held),
			nil)
	}
	all = claims(t, 3)
	if grants, err := b.TryAcquireAll(t.Context(), all); err != nil || len(grants) != len(all) {
		t.Fatalf("TryAcquireAll = %v, %v", grants, err)
	}
	lost.Store(true)
	if released, err := b.TryReleaseAll(t.Context(), all); lost.Load() ||
		backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("TryReleaseAll = %v, %v, want that nobody knows", released, err)
	}
	reply, err := c.Get(t.Context(), b.scheme.paths(all[0].Key).queue, clientv3.WithPrefix())
	if err != nil || reply.Count > 0 {
		t.Errorf("%d keys of a lock are left, %v", reply.Count, err)
	}
}

// Of more claims than one request takes, an answer that does not come to a later request is none to
// the call: what that request asked for may have been granted, or released.
//
// covers: A2, C4
func TestLaterOfManyIsNotAnswered(t *testing.T) {
	srv := testserver.Etcd(t)
	var left atomic.Int64 // transactions up to the one whose answer is lost
	b, _ := tap{lose: func(req any) bool {
		_, txn := req.(*etcdserverpb.TxnRequest)
		return txn && left.Add(-1) == 0
	}}.through(t, srv.Addr(), Config{RequestTimeout: 2 * time.Second})
	acquired(t, b, claim(key(t))) // the lease is there
	all := claims(t, b.scheme.maxTogether()+1)
	if grants, err := b.TryAcquireAll(t.Context(), all); err != nil || len(grants) != len(all) {
		t.Fatalf("TryAcquireAll = %d grants, %v", len(grants), err)
	}
	left.Store(2)
	released, err := b.TryReleaseAll(t.Context(), all)
	if left.Load() > 0 || backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("TryReleaseAll = %v, %v, want that nobody knows", released, err)
	}
	left.Store(2)
	grants, err := b.TryAcquireAll(t.Context(), claims(t, len(all)))
	if left.Load() > 0 || backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("TryAcquireAll = %d grants, %v, want that nobody knows", len(grants), err)
	}
}

// Of more claims than one request takes nothing is asked for behind the first that is not granted,
// wherever it is.
//
// covers: B1, G9
func TestManyUpToOneThatIsHeld(t *testing.T) {
	b := on(t, client(t, testserver.Etcd(t).Addr()), Config{})
	most := b.scheme.maxTogether()
	for _, at := range []int{0, most / 2, most - 1, most, most + 1} {
		all := claims(t, most+2)
		other := claim(all[at].Key)
		acquired(t, b, other)
		grants, err := b.TryAcquireAll(t.Context(), all)
		if err != nil || len(grants) != at {
			t.Errorf("TryAcquireAll of %d keys, the %dth of which is held = %d grants, %v",
				len(all), at+1, len(grants), err)
		}
		want(t, "Release of the one that was held", storetest.Release(t.Context(), b, other), nil)
		released, err := b.TryReleaseAll(t.Context(), all)
		for i, held := range released {
			if held != (i < at) {
				t.Errorf("claim %d held: %v, when the %dth key was held", i+1, held, at+1)
			}
		}
		want(t, "TryReleaseAll", err, nil)
	}
}
