package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/redlock"
)

// More drift than package locker allows for is paid by the nodes.
// covers: D3, Q15
func TestDrift(t *testing.T) {
	quorumTest(t, 1, redlock.Config{Drift: 0.11}, func(q *quorum) {
		c := claim("k")
		q.acquire(c)
		state, err := q.peers[0].Inspect(q.Context(), "k")
		if err != nil || state.Holders[0].TTL != 33*time.Second {
			q.Errorf("asked for %+v, %v; want a lease of 33s", state, err)
		}
	})
}

// A lease that would have to be longer than any is refused before a node is asked, and one that
// fits is asked for in full.
// covers: D3, I2
func TestDriftBeyondTheLongestLease(t *testing.T) {
	quorumTest(t, 3, redlock.Config{Drift: 0.26}, func(q *quorum) {
		c := claim("k")
		c.TTL = 20 * time.Hour // and a quarter is over a day
		_, err := q.TryAcquire(q.Context(), c)
		wantErr(q, "TryAcquire", err, backend.ErrInvalid)
		wantErr(q, "Renew", q.Renew(q.Context(), c), backend.ErrInvalid)
		for i, p := range q.peers {
			if n := p.count(); n != 0 {
				q.Errorf("node %d was asked %d times", i+1, n)
			}
		}
		c.NoneInFlight = false
		wantErr(q, "Release of what was refused", storetest.Release(q.Context(), q, c),
			backend.ErrLost)
		c = claim("k")
		c.TTL = 19 * time.Hour
		q.acquire(c)
		synctest.Wait() // a majority is enough, and the first may not have been in it
		if state, err := q.peers[0].Inspect(q.Context(), "k"); err != nil ||
			state.Holders[0].TTL != 19*time.Hour*5/4 {
			q.Errorf("asked for %+v, %v; want a lease of 23h45m", state, err)
		}
		q.release(c)
	})
}
