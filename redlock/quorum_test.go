package redlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/redlock"
)

// on takes key on some nodes behind the quorum's back.
func (q *quorum) on(c backend.Claim, peers ...*peer) {
	q.Helper()
	for _, p := range peers {
		if _, err := p.Backend.TryAcquire(q.Context(), c); err != nil {
			q.Fatal(err)
		}
	}
}

// covers: A9, Q1, Q2
func TestMinorityIsGivenBack(t *testing.T) {
	for _, n := range []int{3, 4, 5} {
		quorumTest(t, n, redlock.Config{}, func(q *quorum) {
			other, half := claim("k"), n/2 // of an even number half is no majority
			q.on(other, q.peers[:n-half]...)
			_, err := q.TryAcquire(q.Context(), claim("k"))
			var held *backend.HeldError
			if !errors.As(err, &held) || held.RetryAfter <= 0 {
				q.Errorf("%d nodes: TryAcquire = %v, want a *HeldError that says when to ask again",
					n, err)
			}
			if got := q.holders("k"); got != n-half {
				q.Errorf("%d nodes: held on %d, want on the other's %d alone", n, got, n-half)
			}
		})
	}
}

// A distant peer takes its time.
type distant struct {
	*peer
	acquire time.Duration
}

func (d distant) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	time.Sleep(d.acquire)
	return d.peer.TryAcquire(ctx, c)
}

func (d distant) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	time.Sleep(time.Millisecond)
	return d.peer.Release(ctx, c)
}

// Each of five who ask at once is granted by another node, and nobody by a majority: they settle it
// among themselves.
// covers: Q1
func TestClaimsThatMeetSettleIt(t *testing.T) {
	quorumTest(t, 5, redlock.Config{}, func(q *quorum) {
		var all sync.WaitGroup
		var got atomic.Int32
		for near := range q.peers {
			var nodes []backend.Backend
			for i, p := range q.peers {
				d := distant{peer: p}
				if i != near {
					d.acquire = time.Millisecond
				}
				nodes = append(nodes, d)
			}
			b, err := redlock.New(nodes, redlock.Config{})
			if err != nil {
				q.Fatal(err)
			}
			all.Go(func() {
				defer b.Close()
				if _, err := b.TryAcquire(q.Context(), claim("k")); err == nil {
					got.Add(1)
				} else if !errors.Is(err, backend.ErrHeld) {
					q.Errorf("TryAcquire = %v", err)
				}
			})
		}
		all.Wait()
		if n := got.Load(); n != 1 {
			q.Errorf("%d of 5 who asked at once were granted, want 1", n)
		}
	})
}

// Renewal: a majority that proves the hold, or it is lost and the rest is let go. Nodes that lost
// it are filled in.
// covers: Q7, Q8, Q9
func TestRenewByMajority(t *testing.T) {
	quorumTest(t, 5, redlock.Config{}, func(q *quorum) {
		c := claim("k")
		q.acquire(c)
		synctest.Wait()
		for _, p := range q.peers[:2] {
			_, _ = p.Backend.Release(q.Context(), c)
		}
		if err := q.Renew(q.Context(), c); err != nil {
			q.Fatalf("Renew with three nodes of five = %v", err)
		}
		if n := q.holders("k"); n != 5 {
			q.Errorf("held on %d nodes after the renewal, want 5: the missing ones are filled in",
				n)
		}
		for _, p := range q.peers[1:4] {
			_, _ = p.Backend.Release(q.Context(), c)
		}
		wantErr(q, "Renew with two nodes of five", q.Renew(q.Context(), c), backend.ErrLost)
		if n := q.holders("k"); n != 0 {
			q.Errorf("a lost hold still blocks %d nodes", n)
		}
		wantErr(q, "Renew of a lost hold", q.Renew(q.Context(), c), backend.ErrLost)
	})
}

// A node that was silent at the acquisition is filled in by the next renewal, and the attempt that
// it executes afterwards changes nothing. So the hold outlives another node.
//
// covers: Q9
func TestNodeThatWasSilentAtTheAcquisitionIsFilledIn(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: 100 * time.Millisecond}, func(q *quorum) {
		silent, c := q.peers[0], claim("k")
		silent.set(func() { silent.late = true })
		g := q.acquire(c)
		time.Sleep(time.Second) // it was given up
		silent.set(func() { silent.late = false })
		wantErr(q, "Renew by a majority", q.Renew(q.Context(), c), nil)
		if n := q.holders("k"); n != 3 {
			q.Errorf("held on %d nodes after a renewal that all of them answer, want 3", n)
		}
		if _, err := silent.deliver(); err != nil {
			q.Errorf("the acquire that was late, of a node that holds: %v", err)
		}
		q.peers[1].set(func() { q.peers[1].refuse = true })
		wantErr(q, "Renew without a node that had granted", q.Renew(q.Context(), c), nil)
		if again := q.acquire(c); again.Token != g.Token {
			q.Errorf("the repeat was granted token %d, want %d", again.Token, g.Token)
		}
		q.peers[1].set(func() { q.peers[1].refuse = false })
		q.release(c)
		time.Sleep(5 * time.Second)
		if n := q.holders("k"); n != 0 {
			q.Errorf("held on %d nodes after the release", n)
		}
	})
}

// covers: K3, K1
func TestTokensRiseOverMajorities(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: 100 * time.Millisecond}, func(q *quorum) {
		least := q.ahead(q.peers[0])
		last := uint64(0)
		next := func(without *peer) {
			q.Helper()
			without.set(func() { without.hang = true })
			c := claim("k")
			g := q.acquire(c)
			if g.Token <= last {
				q.Errorf("token %d after %d", g.Token, last)
			}
			last = g.Token
			q.release(c)
			without.set(func() { without.hang = false })
			time.Sleep(2 * time.Second)
		}
		next(q.peers[1]) // the token is that of the node ahead, and the third is told
		if last <= least {
			q.Fatalf("token %d, though a node of the majority has given %d", last, least)
		}
		next(q.peers[0])
		next(q.peers[2])
		next(q.peers[0])
	})
}

// ahead sets a node's counter of k far ahead of all clocks.
func (q *quorum) ahead(p *peer) uint64 {
	q.Helper()
	c := claim("k")
	q.on(c, p)
	c.MinToken = uint64(time.Now().Add(24 * 365 * time.Hour).UnixMicro())
	if err := p.Backend.Renew(q.Context(), c); err != nil {
		q.Fatal(err)
	}
	_, _ = p.Backend.Release(q.Context(), c)
	return c.MinToken
}

// A majority has granted, but has not stored the token: that is no grant yet.
// covers: K3
func TestTokenIsWrittenBack(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: 100 * time.Millisecond}, func(q *quorum) {
		q.ahead(q.peers[0])
		q.peers[1].set(func() { q.peers[1].hang = true })
		q.peers[2].set(func() { q.peers[2].stuck = "renew" })
		g, err := q.TryAcquire(q.Context(), claim("k"))
		if backend.AnswerOf(err) != backend.Unknown {
			q.Errorf("TryAcquire = token %d, %v; want an unknown answer, as one node of three "+
				"knows the token", g.Token, err)
		}
	})
}

// A forgetful peer no longer knows what it granted when it is told a higher token.
type forgetful struct {
	*peer
	times int
}

func (f *forgetful) Renew(ctx context.Context, c backend.Claim) error {
	if f.times > 0 {
		f.times--
		_, _ = f.Release(ctx, c)
	}
	return f.peer.Renew(ctx, c)
}

// A majority has granted, and the leases of two nodes end before they have stored the token, as
// each took that long to answer. The attempt has come to nothing, but nobody released the claim:
// who asks again is granted it.
//
// covers: K3, Q2
func TestLeasesThatEndBeforeTheTokenIsStored(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: 100 * time.Millisecond}, func(q *quorum) {
		least := q.ahead(q.peers[0])
		for _, p := range q.peers[1:] { // the highest token is the first that is heard of
			p.set(func() { p.slow = 10 * time.Millisecond })
		}
		b, err := redlock.New([]backend.Backend{
			q.peers[0], &forgetful{q.peers[1], 1}, &forgetful{q.peers[2], 1},
		}, redlock.Config{NodeTimeout: 100 * time.Millisecond})
		if err != nil {
			q.Fatal(err)
		}
		defer b.Close()
		c := claim("k")
		g, err := b.TryAcquire(q.Context(), c)
		if !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrLost) {
			q.Errorf("TryAcquire = token %d, %v; want %v", g.Token, err, backend.ErrUnavailable)
		}
		synctest.Wait()
		if n := q.holders("k"); n != 0 {
			q.Errorf("held on %d nodes after an attempt that came to nothing", n)
		}
		if g, err = b.TryAcquire(q.Context(), c); err != nil || g.Token <= least {
			q.Errorf("asked again: token %d, %v; want one above %d", g.Token, err, least)
		}
		if _, err := b.Release(q.Context(), c); err != nil {
			q.Errorf("Release = %v", err)
		}
		synctest.Wait()
		if n := q.holders("k"); n != 0 {
			q.Errorf("held on %d nodes after the release", n)
		}
	})
}

// covers: K7
func TestReservedTokensAreApart(t *testing.T) {
	quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
		next := uint64(0)
		for range 10 {
			c := claim("k")
			c.Reserve = 5
			g := q.acquire(c)
			if g.Token < next || g.Reserved != 5 {
				q.Errorf("granted %d tokens from %d, want 5 from %d up", g.Reserved, g.Token, next)
			}
			next = g.Token + uint64(g.Reserved)
			q.release(c)
		}
	})
}

// The grant has no more tokens than each node of its majority has reserved: the node that the next
// majority has in common with it may be the one that has reserved the fewest.
// covers: K7
func TestNoMoreTokensThanANodeHasReserved(t *testing.T) {
	quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
		q.peers[0].set(func() { q.peers[0].most = 2 })
		next := uint64(0)
		for _, away := range q.peers[1:] {
			away.set(func() { away.refuse = true })
			b := q.client(redlock.Config{}) // which has not heard of any node that is away
			c := claim("k")
			c.Reserve = 5
			g, err := b.TryAcquire(q.Context(), c)
			if err != nil {
				q.Fatal(err)
			}
			if g.Token < next || g.Reserved > 2 {
				q.Errorf("granted %d tokens from %d, want two at most, from %d up", g.Reserved,
					g.Token, next)
			}
			next = g.Token + uint64(g.Reserved)
			if _, err := b.Release(q.Context(), c); err != nil {
				q.Fatal(err)
			}
			away.set(func() { away.refuse = false })
			if err := b.Close(); err != nil {
				q.Error(err)
			}
		}
	})
}

// covers: Q10, R3
func TestQuarantine(t *testing.T) {
	for _, c := range []struct {
		young int // nodes that have just lost their memory
		want  error
	}{{2, nil}, {3, backend.ErrQuarantined}} {
		synctest.Test(t, func(t *testing.T) {
			q := &quorum{T: t}
			for i := range 5 {
				cfg := membackend.Config{}
				if i < c.young {
					cfg.Quarantine = time.Duration(i+1) * time.Minute
				}
				q.peers = append(q.peers, newPeer(cfg))
			}
			q.Backend = q.client(redlock.Config{})
			defer q.Close()
			_, err := q.TryAcquire(q.Context(), claim("k"))
			var quarantine *backend.QuarantineError
			switch {
			case c.want == nil && err != nil:
				q.Errorf("TryAcquire with %d nodes in quarantine = %v", c.young, err)
			case c.want != nil && (!errors.As(err, &quarantine) ||
				quarantine.RetryAfter != time.Minute):
				q.Errorf("TryAcquire with %d nodes in quarantine = %v, want a *QuarantineError "+
					"until the third node grants", c.young, err)
			}
		})
	}
}

// covers: Q3, Q4
func TestSameServerTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := membackend.New(), membackend.New()
		_, err := redlock.New([]backend.Backend{a, b, a.Client()}, redlock.Config{})
		wantErr(t, "New with a server listed twice", err, backend.ErrUnsafe)
	})
}

// covers: I2
func TestNewRefuses(t *testing.T) {
	three := []backend.Backend{membackend.New(), membackend.New(), membackend.New()}
	for what, try := range map[string]func() (*redlock.Backend, error){
		"no nodes": func() (*redlock.Backend, error) {
			return redlock.New(nil, redlock.Config{})
		},
		"a nil node": func() (*redlock.Backend, error) {
			return redlock.New([]backend.Backend{nil}, redlock.Config{})
		},
		"negative timeout": func() (*redlock.Backend, error) {
			return redlock.New(three, redlock.Config{NodeTimeout: -1})
		},
		"negative drift": func() (*redlock.Backend, error) {
			return redlock.New(three, redlock.Config{Drift: -0.1})
		},
		"too much drift": func() (*redlock.Backend, error) {
			return redlock.New(three, redlock.Config{Drift: 0.6})
		},
	} {
		_, err := try()
		wantErr(t, "New with "+what, err, backend.ErrInvalid)
	}
}

// A release is one wake-up, when a majority is free, and the next one another.
// covers: W1, W2, W12
func TestWatchMerges(t *testing.T) {
	quorumTest(t, 5, redlock.Config{}, func(q *quorum) {
		ctx, cancel := context.WithCancel(q.Context())
		defer cancel()
		wakes, err := q.Watch(ctx, claim("k"))
		if err != nil {
			q.Fatal(err)
		}
		for range 3 {
			c := claim("k")
			q.acquire(c)
			q.release(c)
			start, n := time.Now(), 0
			timeout := time.After(time.Second)
			for done := false; !done; {
				select {
				case <-wakes:
					if n++; n == 1 && time.Since(start) > 10*time.Millisecond {
						q.Errorf("woken after %v", time.Since(start))
					}
				case <-timeout:
					done = true
				}
			}
			if n < 1 || n > 2 {
				q.Errorf("%d wake-ups for one release on five nodes", n)
			}
		}
	})
}
