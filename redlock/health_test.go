package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/redlock"
)

// One hung node of five costs no time at all, and after some attempts it is asked by probes alone.
// When it answers again it takes part.
// covers: Q5, Q9, E2
func TestHungNodeCostsNothing(t *testing.T) {
	quorumTest(t, 5, redlock.Config{NodeTimeout: 100 * time.Millisecond}, func(q *quorum) {
		hung := q.peers[2]
		hung.set(func() { hung.hang = true })
		start := time.Now()
		for range 10 {
			c := claim("k")
			q.acquire(c)
			q.release(c)
		}
		if d := time.Since(start); d != 0 {
			q.Errorf("10 pairs took %v of virtual time, want none", d)
		}
		time.Sleep(time.Second) // the requests that hang have been given up
		before := hung.count()
		for range 100 {
			c := claim("k")
			q.acquire(c)
			q.release(c)
		}
		if n := hung.count() - before; n > 2 {
			q.Errorf("a hung node was asked %d times by 100 pairs, want probes alone", n)
		}
		hung.set(func() { hung.hang = false })
		time.Sleep(3 * time.Second)
		c := claim("k")
		q.acquire(c)
		if n := q.holders("k"); n != 5 {
			q.Errorf("held on %d nodes after the fifth is back", n)
		}
		q.release(c)
		if n := q.holders("k"); n != 0 {
			q.Errorf("%d holds left", n)
		}
	})
}

// covers: Q14
func TestMajorityDown(t *testing.T) {
	quorumTest(t, 5, redlock.Config{NodeTimeout: 100 * time.Millisecond}, func(q *quorum) {
		for _, p := range q.peers[:3] {
			p.set(func() { p.refuse = true })
		}
		for range 5 {
			_, err := q.TryAcquire(q.Context(), claim("k"))
			wantErr(q, "TryAcquire with three refusing nodes", err, backend.ErrUnavailable)
			synctest.Wait() // what the other two granted is given back
		}
		if n := q.holders("k"); n != 0 {
			q.Errorf("%d grants of a minority are left", n)
		}
		for _, p := range q.peers[:3] {
			p.set(func() { p.refuse, p.hang = false, true })
		}
		c := claim("k")
		_, err := q.TryAcquire(q.Context(), c)
		if backend.AnswerOf(err) != backend.Unknown || errors.Is(err, context.DeadlineExceeded) {
			q.Errorf("TryAcquire with three hung nodes = %v, want an unknown answer that is not "+
				"the caller's deadline", err)
		}
		c.NoneInFlight = false
		if _, err := q.Release(q.Context(), c); backend.AnswerOf(err) != backend.Unknown {
			q.Errorf("Release = %v, want an unknown answer", err)
		}
		for _, p := range q.peers[:3] {
			p.set(func() { p.hang = false })
		}
		wantErr(q, "the repeat, with all nodes back", storetest.Release(q.Context(), q, c),
			backend.ErrLost)
		_, err = q.TryAcquire(q.Context(), c)
		wantErr(q, "TryAcquire of what was released", err, backend.ErrLost)
		q.acquire(claim("k")) // at once: nodes that answer are asked again
	})
}

// A node that executed the acquire and whose replies are lost is released as soon as it answers.
// covers: Q14, C4
func TestReleaseIsOwed(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: 100 * time.Millisecond}, func(q *quorum) {
		mute := q.peers[0]
		mute.set(func() { mute.mute = true })
		c := claim("k")
		q.acquire(c)
		synctest.Wait() // executed there, too
		mute.set(func() { mute.mute, mute.hang = false, true })
		q.release(c)
		time.Sleep(time.Second)
		if n := q.holders("k"); n != 1 {
			q.Fatalf("held on %d nodes, want the one that cannot be told", n)
		}
		// It answers, and then not what it is owed.
		mute.set(func() { mute.hang, mute.stuck = false, "release" })
		time.Sleep(2 * time.Second)
		mute.set(func() { mute.stuck = "" })
		time.Sleep(5 * time.Second)
		if n := q.holders("k"); n != 0 {
			q.Errorf("%d holds left 5s after the node answers again, of a lease of 30s", n)
		}
	})
}

// A release goes behind its own acquire on every node, however slow that is (redsync with FailFast
// leaves such keys for a TTL).
// covers: C9
func TestReleaseNeverOvertakes(t *testing.T) {
	quorumTest(t, 5, redlock.Config{NodeTimeout: time.Second}, func(q *quorum) {
		slow := q.peers[4]
		slow.set(func() { slow.slow = 300 * time.Millisecond })
		start := time.Now()
		c := claim("k")
		q.acquire(c)
		q.release(c)
		if d := time.Since(start); d != 0 {
			q.Errorf("lock and unlock waited %v for the slowest node", d)
		}
		time.Sleep(time.Second)
		if n := q.holders("k"); n != 0 {
			q.Errorf("%d holds left", n)
		}
		if v := slow.executed(); len(v) != 2 || v[0] != "acquire" || v[1] != "release" {
			q.Errorf("the slow node executed %v", v)
		}
	})
}

// Close lets what is behind the caller's back end: the release of the slow node.
// covers: G1
func TestCloseWaitsForStragglers(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: time.Second}, func(q *quorum) {
		b := q.client(redlock.Config{})
		slow := q.peers[0]
		slow.set(func() { slow.slow = 300 * time.Millisecond })
		c := claim("k")
		if _, err := b.TryAcquire(q.Context(), c); err != nil {
			q.Fatal(err)
		}
		if _, err := b.Release(q.Context(), c); err != nil {
			q.Fatal(err)
		}
		if err := b.Close(); err != nil {
			q.Fatal(err)
		}
		synctest.Wait()
		if n := q.holders("k"); n != 0 {
			q.Errorf("%d holds left after Close", n)
		}
	})
}
