package etcdbackend

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Thousands of locks are listed in some dozens of requests, each lock once and whole, also where a
// page ends between its entries.
func TestListManyLocks(t *testing.T) {
	t.Parallel()
	const locks = 800
	srv := testserver.Etcd(t)
	var requests atomic.Int64
	b, _ := tap{before: func(req any) {
		if _, keepalive := req.(*etcdserverpb.LeaseKeepAliveRequest); !keepalive {
			requests.Add(1)
		}
	}}.through(t, srv.Addr(), Config{RequestTimeout: patience})
	holders := opened(t, at(srv.Addr()))
	prefix := key(t)
	name := func(i int) string { return fmt.Sprintf("%s/%04d", prefix, i) }
	var wg sync.WaitGroup
	for from := range 20 {
		wg.Go(func() {
			for i := from; i < locks; i += 20 {
				c := claim(name(i))
				if _, err := holders.TryAcquire(t.Context(), c); err != nil {
					t.Error(err)
				}
				for range 2 {
					if _, err := holders.TryAcquire(t.Context(),
						inLine(name(i))); backend.AnswerOf(err) != backend.No {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	requests.Store(0)
	var names []string
	for l, err := range b.List(t.Context(), prefix) {
		want(t, "List", err, nil)
		if len(l.State.Holders) != 1 || l.State.Holders[0].TTL <= 0 || len(l.State.Waiters) != 2 {
			t.Fatalf("%q: %+v", l.Key, l.State)
		}
		names = append(names, l.Key)
	}
	if len(names) != locks || !slices.IsSorted(names) || names[0] != name(0) ||
		names[locks-1] != name(locks-1) {
		t.Errorf("%d locks: %.100q", len(names), names)
	}
	// Three pages of entries, a request for each hundred locks, and one for how long their lease
	// runs; on a busy machine some are sent again.
	if n := requests.Load(); n > locks/8 {
		t.Errorf("%d requests", n)
	}
}
