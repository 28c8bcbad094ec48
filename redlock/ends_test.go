package redlock_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/redlock"
)

// Who does not wait for the nodes' answers has no answer: neither a yes nor a no.
//
// covers: A3, Q14
func TestRequestThatItsCallerLeaves(t *testing.T) {
	for name, verb := range map[string]func(ctx context.Context, q *quorum,
		held backend.Claim) error{
		"TryAcquire": func(ctx context.Context, q *quorum, _ backend.Claim) error {
			_, err := q.TryAcquire(ctx, claim("k"))
			return err
		},
		"Renew": func(ctx context.Context, q *quorum, held backend.Claim) error {
			return q.Renew(ctx, held)
		},
		"Release": func(ctx context.Context, q *quorum, held backend.Claim) error {
			_, err := q.Release(ctx, held)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			quorumTest(t, 3, redlock.Config{NodeTimeout: time.Second}, func(q *quorum) {
				held := claim("held")
				q.acquire(held)
				synctest.Wait()
				for _, p := range q.peers[:2] {
					p.set(func() { p.hang = true })
				}
				ctx, cancel := context.WithTimeout(q.Context(), time.Second/2)
				defer cancel()
				err := verb(ctx, q, held)
				if backend.AnswerOf(err) != backend.Unknown ||
					!errors.Is(err, context.DeadlineExceeded) {
					q.Errorf("%s = %v, want its ctx's error", name, err)
				}
			})
		})
	}
}

// A release is told of when no answer to come can change it: one node is not asked, as it has hung
// for long, and another does not answer.
//
// covers: C4, Q14
func TestReleaseBesideOneThatIsNotAsked(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
		away, silent, c := q.peers[0], q.peers[1], claim("k")
		q.acquire(c)
		synctest.Wait()
		q.unhealthy(away)
		silent.set(func() { silent.stuck = "release" })
		began := time.Now()
		ctx, cancel := context.WithTimeout(q.Context(), time.Minute)
		defer cancel()
		_, err := q.Release(ctx, c)
		if took := time.Since(began); backend.AnswerOf(err) != backend.Unknown ||
			took > nodeTimeout {
			q.Errorf("Release = %v after %v, want an unknown answer within %v", err, took,
				nodeTimeout)
		}
		for _, p := range []*peer{away, silent} {
			p.set(func() { p.hang, p.stuck = false, "" })
		}
		time.Sleep(5 * time.Second)
		if n := q.holders("k"); n != 0 {
			q.Errorf("%d holds left 5s after all nodes serve again", n)
		}
	})
}

// unhealthy has a node hang for so long that it is not asked any more.
func (q *quorum) unhealthy(peers ...*peer) {
	q.Helper()
	for _, p := range peers {
		p.set(func() { p.hang = true })
	}
	for range 20 {
		c := claim("another")
		ctx, cancel := context.WithTimeout(q.Context(), 2*nodeTimeout)
		if _, err := q.TryAcquire(ctx, c); err == nil {
			q.release(c)
		}
		cancel()
		time.Sleep(2 * nodeTimeout)
	}
}

// A node that cannot store a higher token is told of it once for each attempt, and does not keep
// its claim's other requests, as the release, waiting.
//
// covers: K3
func TestTokenThatANodeDoesNotTake(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
		q.ahead(q.peers[0])
		full := &full{peer: q.peers[2], most: 10}
		q.peers[1].set(func() { q.peers[1].hang = true })
		b, err := redlock.New([]backend.Backend{q.peers[0], q.peers[1], full},
			redlock.Config{NodeTimeout: nodeTimeout})
		if err != nil {
			q.Fatal(err)
		}
		defer b.Close()
		c := claim("k")
		if _, err := b.TryAcquire(q.Context(), c); err == nil {
			q.Error("granted, though one node alone has stored the token")
		}
		_, _ = b.Release(q.Context(), c)
		synctest.Wait()
		if full.renewals != 1 {
			q.Errorf("told %d times, want once", full.renewals)
		}
	})
}

// A full peer takes none of its first renewals.
type full struct {
	*peer
	most     int
	renewals int
}

func (f *full) Renew(ctx context.Context, c backend.Claim) error {
	if f.renewals++; f.renewals > f.most {
		return f.peer.Renew(ctx, c)
	}
	return backend.ErrUnavailable
}

// The release may have reached a node that is subscribed to, and one that is not. So the first node
// that wakes is enough, a moment later.
//
// covers: W1, W12
func TestWakeUpByOneNode(t *testing.T) {
	quorumTest(t, 5, redlock.Config{}, func(q *quorum) {
		ctx, cancel := context.WithCancel(q.Context())
		defer cancel()
		wakes, err := q.Watch(ctx, claim("k"))
		wantErr(q, "Watch", err, nil)
		synctest.Wait() // for the nodes beyond the majority
		for i := range 2 {
			for range cap(wakes) { // what was told twice
				select {
				case <-wakes:
				default:
				}
			}
			c := claim("k")
			q.on(c, q.peers[3])
			_, err := q.peers[3].Backend.Release(q.Context(), c)
			wantErr(q, "Release", err, nil)
			select {
			case <-wakes:
			case <-time.After(time.Second):
				q.Errorf("nobody was woken by release %d on one node", i)
			}
			time.Sleep(time.Second)
		}
	})
}

// Whoever cannot subscribe on a majority is told at once, and polls.
//
// covers: W12, W13
func TestWatchWithoutAMajority(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
		q.unhealthy(q.peers[:2]...)
		ctx, cancel := context.WithTimeout(q.Context(), time.Minute)
		defer cancel()
		if _, err := q.Watch(ctx, claim("k")); err == nil || ctx.Err() != nil {
			q.Errorf("Watch beside two nodes of three that hang = %v, want an error", err)
		}
	})
}

// Whoever leaves while the nodes do not answer does not wait for them.
//
// covers: W12
func TestWatchThatItsCallerLeaves(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: time.Hour}, func(q *quorum) {
		var nodes []backend.Backend
		for _, p := range q.peers {
			nodes = append(nodes, deafened{
				p,
				func(ctx context.Context, _ backend.Claim) (<-chan backend.Wake, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				},
			})
		}
		b, err := redlock.New(nodes, redlock.Config{NodeTimeout: time.Hour})
		wantErr(q, "New", err, nil)
		defer b.Close()
		ctx, cancel := context.WithTimeout(q.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err = b.Watch(ctx, claim("k"))
		if wantErr(q, "Watch", err, context.DeadlineExceeded); time.Since(began) > time.Second {
			q.Errorf("Watch returned after %v", time.Since(began))
		}
	})
}

// Whoever asked for a node while a majority had granted to another keeps what that node granted to
// him: a hold that is ended by force ends alone.
//
// covers: Q1
func TestForceReleaseLeavesAnother(t *testing.T) {
	quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
		held, other := claim("k"), claim("k")
		q.on(other, q.peers[2])
		g := q.acquire(held)
		_, err := q.ForceRelease(q.Context(), "k", g.Token)
		wantErr(q, "ForceRelease", err, nil)
		synctest.Wait()
		state, err := q.peers[2].Inspect(q.Context(), "k")
		wantErr(q, "Inspect", err, nil)
		if !slices.ContainsFunc(state.Holders, func(h backend.Holder) bool {
			return h.Owner == other.Owner
		}) {
			q.Errorf("the third node is held as %+v, want by whoever had it", state.Holders)
		}
	})
}

func init() {
	backend.Register("denies", func(context.Context, *url.URL) (backend.Backend, error) {
		return nil, backend.ErrDenied
	})
	backend.Register("opened", func(ctx context.Context, u *url.URL) (backend.Backend, error) {
		b, err := backend.Open(ctx, "mem://"+u.Host)
		opened.Add(1)
		return closing{b}, err
	})
}

var opened atomic.Int32 // nodes that are not closed

type closing struct{ backend.Backend }

func (c closing) Close() error {
	opened.Add(-1)
	return c.Backend.Close()
}

// A node that refuses for good, as a wrong password, is no node that is away for a while. The
// others are closed.
//
// covers: I3
func TestOpenWithANodeThatDenies(t *testing.T) {
	var nodes []string
	for _, n := range []string{"opened://denied.a", "opened://denied.b", "denies://"} {
		nodes = append(nodes, "node="+url.QueryEscape(n))
	}
	b, err := backend.Open(t.Context(), "redlock://?"+strings.Join(nodes, "&"))
	if err == nil {
		_ = b.Close()
	}
	wantErr(t, "Open", err, backend.ErrDenied)
	if n := opened.Load(); n != 0 {
		t.Errorf("%d nodes stay open", n)
	}
}

// Where a majority serves nothing, that is the answer, and not who holds one of the others: whoever
// waited for that one would not hear of the outage.
//
// covers: Q14, E2
func TestHolderBesideAMajorityThatIsAway(t *testing.T) {
	quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
		other := claim("k")
		// So it is known that it is one of a quorum's, and has no majority.
		other.Meta.Quorum = "/12345678"
		q.on(other, q.peers[0])
		for _, p := range q.peers[1:] {
			p.set(func() { p.refuse = true })
		}
		late := []backend.Backend{
			q.peers[0],
			distant{q.peers[1], time.Millisecond},
			distant{q.peers[2], time.Millisecond},
		}
		b, err := redlock.New(late, redlock.Config{})
		wantErr(q, "New", err, nil)
		defer b.Close()
		_, err = b.TryAcquire(q.Context(), claim("k"))
		if !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrHeld) {
			q.Errorf("TryAcquire = %v, want that the store is unavailable", err)
		}
	})
}

// A node that did not store the token when it was told is told again by each renewal: it may be the
// only one that the next majority has in common with this.
//
// covers: K3, Q8
func TestRenewalsTellTheToken(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
		q.ahead(q.peers[0])
		last, c := &full{peer: q.peers[2], most: 10}, claim("k")
		b, err := redlock.New([]backend.Backend{
			q.peers[0],
			distant{q.peers[1], time.Millisecond},
			last,
		}, redlock.Config{NodeTimeout: nodeTimeout})
		wantErr(q, "New", err, nil)
		defer b.Close()
		g, err := b.TryAcquire(q.Context(), c)
		wantErr(q, "TryAcquire", err, nil)
		synctest.Wait()
		token := func() uint64 {
			state, err := last.Inspect(q.Context(), "k")
			wantErr(q, "Inspect", err, nil)
			return state.Token
		}
		if token() == g.Token {
			q.Error("it has stored the token at once: that shows nothing")
		}
		last.most = 0
		wantErr(q, "Renew", b.Renew(q.Context(), c), nil)
		synctest.Wait()
		if got := token(); got != g.Token {
			q.Errorf("the third node is at token %d, want %d", got, g.Token)
		}
	})
}
