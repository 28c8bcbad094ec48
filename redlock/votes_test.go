package redlock_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/redlock"
)

// A hesitant peer takes its time for the first renewal, and executes no other.
type hesitant struct {
	*peer
	renewals atomic.Int32
}

func (h *hesitant) Renew(ctx context.Context, c backend.Claim) error {
	if h.renewals.Add(1) > 1 {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(10 * time.Millisecond)
	return h.peer.Renew(ctx, c)
}

// A node has stored the token that it was told, and not the higher one that another node has
// granted since:
// it does not make a majority for that.
//
// covers: K3
func TestConfirmedTokenIsTheOneThatWasTold(t *testing.T) {
	cfg := redlock.Config{NodeTimeout: 100 * time.Millisecond}
	quorumTest(t, 3, cfg, func(q *quorum) {
		low, high, highest := q.peers[0], q.peers[1], q.peers[2]
		q.ahead(high)
		time.Sleep(time.Second)
		token := q.ahead(highest)
		high.set(func() { high.stuck = "renew" })
		// While low is told the token of high.
		highest.set(func() { highest.slow = 5 * time.Millisecond })
		b, err := redlock.New([]backend.Backend{&hesitant{peer: low}, high, highest}, cfg)
		if err != nil {
			q.Fatal(err)
		}
		defer b.Close()
		g, err := b.TryAcquire(q.Context(), claim("k"))
		if backend.AnswerOf(err) != backend.Unknown {
			q.Errorf("TryAcquire = token %d, %v; want an unknown answer, as one node of three "+
				"has stored over %d",
				g.Token, err, token)
		}
	})
}

// A majority that serves nothing for a moment has not lost the hold: what comes when it serves
// again finds it.
//
// covers: B2, Q14
func TestHoldOutlivesARefusedRenewal(t *testing.T) {
	for name, next := range map[string]struct {
		verb func(q *quorum, c backend.Claim) error
		left int // nodes that are held after it
	}{
		"renewed": {func(q *quorum, c backend.Claim) error { return q.Renew(q.Context(), c) }, 3},
		"released": {func(q *quorum, c backend.Claim) error {
			_, err := q.Release(q.Context(), c)
			return err
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
				c := claim("k")
				q.acquire(c)
				synctest.Wait()
				for _, p := range q.peers[:2] {
					p.set(func() { p.refuse = true })
				}
				if err := q.Renew(q.Context(), c); err == nil || errors.Is(err, backend.ErrLost) {
					q.Errorf("Renew beside two nodes that refuse = %v, want an error "+
						"that is no loss", err)
				}
				synctest.Wait() // the third node may have been slower than the two
				for _, p := range q.peers[:2] {
					p.set(func() { p.refuse = false })
				}
				if err := next.verb(q, c); err != nil {
					q.Errorf("when all nodes serve again: %v, want success, as all of them hold",
						err)
				}
				if n := q.holders("k"); n != next.left {
					q.Errorf("held on %d nodes after it, want %d", n, next.left)
				}
			})
		})
	}
}

// A hold that is gone on a majority is lost, whichever of the nodes answers last: one that is away,
// and one that says so at once, leave it open, and what the last one says decides.
//
// covers: C4
func TestLastAnswerSaysThatItIsLost(t *testing.T) {
	for name, verb := range map[string]func(q *quorum, c backend.Claim) error{
		"renewal": func(q *quorum, c backend.Claim) error { return q.Renew(q.Context(), c) },
		"release": func(q *quorum, c backend.Claim) error {
			_, err := q.Release(q.Context(), c)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
				c := claim("k")
				q.acquire(c)
				synctest.Wait()
				away, gone, last := q.peers[0], q.peers[1], q.peers[2]
				for _, p := range []*peer{gone, last} {
					// Behind the quorum's back.
					if _, err := p.Backend.Release(q.Context(), c); err != nil {
						q.Fatal(err)
					}
				}
				away.set(func() { away.refuse = true })
				last.set(func() { last.slow = 10 * time.Millisecond })
				wantErr(q, "what is asked about a hold that two nodes of three do not have",
					verb(q, c), backend.ErrLost)
			})
		})
	}
}

// A node that serves nothing for a moment, is in quarantine, or lets its user do nothing any more,
// does not say that it has nothing of the claim: what it granted to an attempt that came to nothing
// is given back with the rest.
//
// covers: C2, Q14
func TestGrantOfANodeThatServesNothingNow(t *testing.T) {
	for name, why := range map[string]error{
		"not serving":   backend.ErrUnavailable,
		"in quarantine": &backend.QuarantineError{RetryAfter: time.Second},
		"denied":        backend.ErrDenied,
	} {
		t.Run(name, func(t *testing.T) { grantOfANodeThatRefuses(t, why) })
	}
}

func grantOfANodeThatRefuses(t *testing.T, why error) {
	cfg := redlock.Config{NodeTimeout: 100 * time.Millisecond}
	quorumTest(t, 3, cfg, func(q *quorum) {
		away := q.peers[0]
		others := func(hang bool) {
			for _, p := range q.peers[1:] {
				p.set(func() { p.hang = hang })
			}
		}
		c := claim("k")
		others(true)
		if _, err := q.TryAcquire(q.Context(), c); backend.AnswerOf(err) != backend.Unknown {
			q.Fatalf("TryAcquire where one node of three answers = %v, want an unknown answer", err)
		}
		others(false)
		away.set(func() { away.refuse, away.why = true, why })
		q.acquire(c)
		away.set(func() { away.refuse, away.hang = false, true })
		// And is asked no more for a while.
		for _, key := range []string{"l", "m", "n", "o", "p", "q"} {
			q.acquire(claim(key))
			time.Sleep(cfg.NodeTimeout)
		}
		c.NoneInFlight = false
		q.release(c)
		away.set(func() { away.hang = false })
		time.Sleep(c.TTL / 4) // what it is owed follows
		if n := q.holders("k"); n > 0 {
			q.Errorf("held on %d nodes by who has released", n)
		}
	})
}

// One claim holds a majority, of stores that show the same in other ways: it is no collision of
// several, which would be tried again and again.
//
// covers: Q1
func TestOneHolderThatNodesShowInOtherWays(t *testing.T) {
	since := time.Date(2026, 11, 29, 1, 2, 3, 0, time.UTC)
	for name, shown := range map[string][2]backend.Meta{
		"in other zones": {
			{Service: "billing", Since: since, Quorum: "/12345678"},
			{Service: "billing", Since: since.In(time.FixedZone("", 0)), Quorum: "/12345678"},
		},
		"with lists from before and after a restart": {
			{Service: "billing", Quorum: "000000000000000000000000/12345678"},
			{Service: "billing", Quorum: "000000000000000000000001/12345678"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
				other := claim("k")
				for i, meta := range shown {
					other.Meta = meta
					q.on(other, q.peers[i])
				}
				q.peers[0].set(func() { q.peers[0].slow = time.Millisecond }) // the third grants
				q.peers[1].set(func() { q.peers[1].slow = time.Millisecond })
				_, err := q.TryAcquire(q.Context(), claim("k"))
				var held *backend.HeldError
				if !errors.As(err, &held) || held.Holder.Service != "billing" {
					q.Errorf("TryAcquire = %v, want that the one holder has the key", err)
				}
				synctest.Wait()
				if v := q.peers[2].executed(); len(v) != 2 {
					q.Errorf("the third node executed %v, want one acquire and its release", v)
				}
			})
		})
	}
}

// A hasty peer has a clock that is 11 % fast.
type hasty struct{ *peer }

func (h hasty) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	c.TTL = c.TTL * 100 / 111
	return h.peer.TryAcquire(ctx, c)
}

func (h hasty) Renew(ctx context.Context, c backend.Claim) error {
	c.TTL = c.TTL * 100 / 111
	return h.peer.Renew(ctx, c)
}

// The longer lease that nodes are asked for is for the drift alone: a holder believes in none of
// it, and is done before nodes with fast clocks grant the key to another.
//
// covers: D3, Q15
func TestDriftIsNotTheHoldersTime(t *testing.T) {
	cfg := redlock.Config{Drift: 0.11}
	quorumTest(t, 3, cfg, func(q *quorum) {
		var nodes []backend.Backend
		for _, p := range q.peers {
			p.set(func() { p.stuck = "renew" })
			nodes = append(nodes, hasty{p})
		}
		b, err := redlock.New(nodes, cfg)
		if err != nil {
			q.Fatal(err)
		}
		defer b.Close()
		quiet := slog.New(slog.DiscardHandler)
		l, err := locker.New(b, locker.Bare, locker.Config{TTL: 30 * time.Second, Logger: quiet})
		if err != nil {
			q.Fatal(err)
		}
		defer l.Close()
		g, err := l.Lock(q.Context(), "k")
		if err != nil {
			q.Fatal(err)
		}
		time.Sleep(29*time.Second + 650*time.Millisecond)
		if _, err := g.Value(); err != nil {
			q.Errorf("a moment before the lease ends on the nodes: %v", err)
		}
		time.Sleep(100 * time.Millisecond) // of 33s by clocks that are 11 % fast 29.73s are left
		next := claim("k")
		q.acquire(next)
		_, err = g.Value()
		wantErr(q, "Value when another has been granted", err, locker.ErrLost)
		for _, p := range q.peers {
			p.set(func() { p.stuck = "" })
		}
		wantErr(q, "Unlock", g.Unlock(), locker.ErrLost)
		q.release(next)
	})
}
