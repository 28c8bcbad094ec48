package etcdbackend

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// TestReleaseReadsWhoWaited: a release reads the queue in its own transaction, so it costs no Raft
// entry more, and not at all for a claim that is younger than ShortHold.
func TestReleaseReadsWhoWaited(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b := on(t, c, Config{})
	acquired(t, b, claim(key(t))) // makes the lease
	release := func(age time.Duration,
		waits bool,
	) (told backend.Released, entries uint64, was time.Duration) {
		holder, waiter := claim(key(t)), inLine("")
		holder.Meta.Since, holder.NoneInFlight = time.Now().Add(-age), true
		waiter.Key, waiter.Meta.PID, waiter.NoneInFlight = holder.Key, 4711, true
		acquired(t, b, holder)
		if waits {
			_, err := b.TryAcquire(t.Context(), waiter)
			want(t, "an attempt that queues", err, backend.ErrHeld)
		}
		before, err := c.Status(t.Context(), srv.Addr())
		want(t, "status", err, nil)
		told, err = b.Release(t.Context(), holder)
		was = time.Since(holder.Meta.Since)
		want(t, "release", err, nil)
		after, err := c.Status(t.Context(), srv.Addr())
		want(t, "status", err, nil)
		if waits {
			_, _ = b.Release(t.Context(), waiter)
		}
		return told, after.RaftIndex - before.RaftIndex, was
	}
	for _, waits := range []bool{false, true} {
		var fewest [2]uint64
		for i := range 20 { // something else may write between two looks
			told, entries, was := release(0, waits)
			if told != (backend.Released{}) && was < backend.ShortHold {
				t.Errorf("the release of a young claim told of %+v", told)
			}
			told, more, _ := release(time.Hour, waits)
			if (told.Waiting == 1 && told.Next.PID == 4711) != waits {
				t.Errorf("the release told of %+v; somebody waited: %v", told, waits)
			}
			if i == 0 {
				fewest = [2]uint64{entries, more}
			}
			fewest = [2]uint64{min(fewest[0], entries), min(fewest[1], more)}
		}
		if fewest[0] != fewest[1] {
			t.Errorf("%d Raft entries, and %d with who waited", fewest[0], fewest[1])
		}
	}
}

// Somebody revokes the lease of this client's tombstones: the release that hears of it is not made,
// and the next one is.
//
// covers: X18
func TestReleaseAfterItsTombstonesLeaseIsRevoked(t *testing.T) {
	inPair(t, []Layout{Native, Etcdctl}, func(t *testing.T, p pair) {
		hold := func() backend.Claim {
			c := claim("k")
			acquired(t, p.b, c)
			c.NoneInFlight = false // so it leaves a tombstone
			return c
		}
		want(t, "Release", storetest.Release(t.Context(), p.b, hold()), nil)
		p.b.mu.Lock()
		id := int64(p.b.tombstones.id)
		p.b.mu.Unlock()
		p.etcd.mu.Lock()
		p.etcd.revoke(id)
		p.etcd.mu.Unlock()
		c := hold()
		if err := storetest.Release(t.Context(), p.b, c); err != nil {
			want(t, "Release again", storetest.Release(t.Context(), p.b, c), nil)
		}
	})
}
