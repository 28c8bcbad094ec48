package etcdbackend

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Permits of two limits that begin at once, by several clients: at no revision are both in one
// queue, and the weights of those that hold are within the limit. 5 and 50 begin alike, and so do
// their keys.
//
// covers: Q12, I9
func TestLimitsThatRace(t *testing.T) {
	srv := testserver.Etcd(t)
	see := client(t, srv.Addr())
	backends := []*Backend{
		opened(t, at(srv.Addr())), opened(t, at(srv.Addr())),
		opened(t, at(srv.Addr())),
	}
	names := []string{key(t), key(t)}
	var grants, mismatches atomic.Int64
	few := func() bool { return grants.Load() < 50 || mismatches.Load() < 10 }
	began := time.Now()
	goesOn := func() bool { // for longer where the machine is busy
		took := time.Since(began)
		return took < 2*time.Second || took < patience && few()
	}
	var workers, judges sync.WaitGroup
	for _, name := range names {
		p := backends[0].scheme.paths(name)
		q := &queue{}
		events := see.Watch(t.Context(), p.queue, clientv3.WithPrefix(), clientv3.WithRev(1))
		judges.Go(func() {
			for reply := range events {
				for i, e := range reply.Events {
					if err := q.apply(p, e); err != nil {
						t.Errorf("revision %d: %v", e.Kv.ModRevision, err)
					}
					if i+1 < len(reply.Events) && reply.Events[i+1].Kv.ModRevision == q.revision {
						continue
					}
					q.settle()
					judgeLimits(t, q)
				}
				if len(q.entries) == 0 && !goesOn() {
					return
				}
			}
		})
	}
	for n := range 12 {
		//nolint:gosec // a test
		r := rand.New(rand.NewPCG(uint64(n), uint64(time.Now().UnixNano())))
		workers.Go(func() {
			for goesOn() {
				b, c := backends[r.IntN(len(backends))], heavy(names[r.IntN(len(names))], 5,
					1+r.IntN(5))
				if r.IntN(2) == 0 {
					c.Limit, c.Weight = 50, 10*c.Weight
				}
				c.Queue, c.WaiterTTL = r.IntN(3) > 0, c.TTL
				_, err := b.TryAcquire(t.Context(), c)
				for range r.IntN(4) {
					if errors.Is(err, backend.ErrHeld) && c.Queue {
						_, err = b.TryAcquire(t.Context(), c)
					}
				}
				var mismatch *backend.MismatchError
				switch {
				case err == nil:
					grants.Add(1)
				case errors.As(err, &mismatch):
					mismatches.Add(1)
				case !errors.Is(err, backend.ErrHeld):
					t.Errorf("TryAcquire = %v", err)
				}
				c.NoneInFlight = err == nil
				if _, again := b.Release(context.Background(), c); err == nil && again != nil {
					t.Errorf("Release of what was held = %v", again)
				}
			}
		})
	}
	workers.Wait()
	for _, name := range names { // whatever came last
		_, err := see.Put(t.Context(), backends[0].scheme.paths(name).queue+"token",
			strconv.Itoa(1))
		want(t, "Put", err, nil)
	}
	judges.Wait()
	if few() {
		t.Errorf("%d grants and %d refusals for another limit are too few to judge by",
			grants.Load(), mismatches.Load())
	}
}

func judgeLimits(t *testing.T, q *queue) {
	t.Helper()
	limits, sum := []int(nil), 0
	for _, e := range q.entries {
		if !slices.Contains(limits, e.limit) {
			limits = append(limits, e.limit)
		}
		if e.granted {
			sum += e.weight
		}
	}
	if len(limits) > 1 || len(limits) == 1 && sum > limits[0] {
		t.Errorf("revision %d: permits of the limits %v are in one queue, and %d are held",
			q.revision, limits, sum)
	}
}
