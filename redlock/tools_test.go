package redlock_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/redlock"
)

// looked counts the looks at single keys, and lists nothing while it is down.
type looked struct {
	*membackend.Backend
	looks *atomic.Int64
	down  *atomic.Bool
}

func (l looked) Inspect(ctx context.Context, key string) (backend.State, error) {
	l.looks.Add(1)
	return l.Backend.Inspect(ctx, key)
}

func (l looked) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	if l.down.Load() {
		return func(yield func(backend.Listed, error) bool) {
			yield(backend.Listed{}, backend.ErrUnavailable)
		}
	}
	return l.Backend.List(ctx, prefix)
}

// A quorum lists what a majority of its nodes hold, from one list of each; it looks again at what
// they do not agree on, and shows what a majority may hold if some nodes do not answer.
func TestListMergesTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		var down [5]atomic.Bool
		var mem []*membackend.Backend
		var nodes []backend.Backend
		for i := range down {
			mem = append(mem, membackend.New())
			nodes = append(nodes, looked{mem[i], &looks, &down[i]})
		}
		r, err := redlock.New(nodes, redlock.Config{})
		wantErr(t, "New", err, nil)
		defer r.Close()
		for i := range 100 {
			_, err := r.TryAcquire(t.Context(), claim(fmt.Sprintf("order-%02d", i)))
			wantErr(t, "TryAcquire", err, nil)
		}
		synctest.Wait() // until no node has requests in flight, for which it would not be asked
		left := claim("order-left")
		for _, b := range mem[:2] { // a minority
			_, err := b.TryAcquire(t.Context(), left)
			wantErr(t, "TryAcquire", err, nil)
		}
		list := func(what string, locks, most int) {
			looks.Store(0)
			n := 0
			for l, err := range r.List(t.Context(), "order-") {
				wantErr(t, "List", err, nil)
				if n++; len(l.State.Holders) != 1 || l.State.Token != l.State.Holders[0].Token {
					t.Errorf("%s: %q: %+v", what, l.Key, l.State)
				}
			}
			if n != locks || looks.Load() > int64(most) {
				t.Errorf("%s: %d locks by %d looks, want %d by %d at most", what, n, looks.Load(),
					locks, most)
			}
		}
		list("all nodes", 100, 5)
		down[4].Store(true) // that one might have the third
		list("one that does not list", 101, 5)
		down[2].Store(true)
		down[3].Store(true)
		for _, err := range r.List(t.Context(), "order-") {
			wantErr(t, "List without a majority", err, backend.ErrUnavailable)
		}
	})
}

// A claim was given back on a node, as another had the majority, and the node did not say so: it
// has another name there when it is granted. A hold that is ended by force ends on that node too.
//
// covers: Q1
func TestForceReleaseOnNodesThatKnowTheClaimByAnotherName(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: 100 * time.Millisecond}, func(q *quorum) {
		other, c := claim("k"), claim("k")
		q.on(other, q.peers[:2]...)
		q.peers[2].set(func() { q.peers[2].stuck = "release" })
		_, err := q.TryAcquire(q.Context(), c)
		wantErr(q, "TryAcquire beside another's majority", err, backend.ErrHeld)
		time.Sleep(time.Second)
		q.peers[2].set(func() { q.peers[2].stuck = "" })
		time.Sleep(5 * time.Second) // it serves again, and so it is asked again
		for _, p := range q.peers[:2] {
			if _, err := p.Backend.Release(q.Context(), other); err != nil {
				q.Fatal(err)
			}
		}
		g := q.acquire(c)
		synctest.Wait()
		names := map[string]bool{}
		for _, p := range q.peers {
			state, err := p.Inspect(q.Context(), "k")
			wantErr(q, "Inspect", err, nil)
			for _, h := range state.Holders {
				names[h.Owner] = true
			}
		}
		if len(names) < 2 {
			q.Fatalf("held as %v, want another name on the node that had granted before: this "+
				"test shows nothing", names)
		}
		h, err := q.ForceRelease(q.Context(), "k", g.Token)
		if err != nil || h.Owner != c.Owner {
			q.Errorf("ForceRelease = %+v, %v", h, err)
		}
		if n := q.holders("k"); n != 0 {
			q.Errorf("still held on %d nodes", n)
		}
	})
}

// A majority that answers ends a hold, whatever becomes of the others.
//
// covers: Q1, Q14
func TestForceReleaseWithoutANode(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
		g := q.acquire(claim("k"))
		synctest.Wait()
		var nodes []backend.Backend
		for _, p := range q.peers[:2] {
			nodes = append(nodes, p)
		}
		b, err := redlock.New(append(nodes, away{q.peers[2]}),
			redlock.Config{NodeTimeout: nodeTimeout})
		wantErr(q, "New", err, nil)
		defer b.Close()
		_, err = b.ForceRelease(q.Context(), "k", g.Token)
		wantErr(q, "ForceRelease beside a node that is away", err, nil)
		if n := q.holders("k"); n != 1 {
			q.Errorf("held on %d nodes, want on the one that is away", n)
		}
	})
}

// Less than a majority has ended the hold, and nobody knows of the others: that is no no, whatever
// else one of them says. A node where it was gone meanwhile is done.
//
// covers: C4
func TestForceReleaseByAMinority(t *testing.T) {
	for name, test := range map[string]struct {
		second func(p *peer)
		want   backend.Answer
	}{
		"and one that is silent":  {func(p *peer) { p.stuck = "release" }, backend.Unknown},
		"and one that is away":    {func(p *peer) { p.refuse = true }, backend.Unknown},
		"and one that denies":     {func(p *peer) { p.refuse, p.why = true, backend.ErrDenied }, 0},
		"and one where it is not": {func(p *peer) { p.refuse, p.why = true, backend.ErrLost }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
				g := q.acquire(claim("k"))
				synctest.Wait()
				q.peers[1].set(func() { test.second(q.peers[1]) })
				b, err := redlock.New([]backend.Backend{
					q.peers[0], q.peers[1], away{q.peers[2]},
				}, redlock.Config{NodeTimeout: nodeTimeout})
				wantErr(q, "New", err, nil)
				defer b.Close()
				_, err = b.ForceRelease(q.Context(), "k", g.Token)
				if got := backend.AnswerOf(err); got != test.want {
					q.Errorf("ForceRelease = %v, which is answer %d, want %d", err, got, test.want)
				}
				if n := q.holders("k"); n != 2 {
					q.Errorf("held on %d nodes, want on two: this test shows nothing", n)
				}
			})
		})
	}
}

// No node has ended the hold: that is what they say.
//
// covers: C4
func TestForceReleaseThatAllNodesDeny(t *testing.T) {
	quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
		g := q.acquire(claim("k"))
		synctest.Wait()
		for _, p := range q.peers {
			p.set(func() { p.refuse, p.why = true, backend.ErrDenied })
		}
		_, err := q.ForceRelease(q.Context(), "k", g.Token)
		wantErr(q, "ForceRelease", err, backend.ErrDenied)
	})
}

// A vast peer has so much else that its locks are listed after takes.
type vast struct {
	*peer
	takes time.Duration
}

func (v vast) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	return func(yield func(backend.Listed, error) bool) {
		if v.takes > 0 {
			select {
			case <-time.After(v.takes):
			case <-ctx.Done():
				yield(backend.Listed{}, ctx.Err())
				return
			}
		}
		for l, err := range v.peer.List(ctx, prefix) {
			if !yield(l, err) {
				return
			}
		}
	}
}

// vastQuorum is q's nodes, some of which have much else.
func (q *quorum) vastQuorum(takes ...time.Duration) *redlock.Backend {
	q.Helper()
	var nodes []backend.Backend
	for i, p := range q.peers {
		nodes = append(nodes, vast{p, takes[i]})
	}
	b, err := redlock.New(nodes, redlock.Config{NodeTimeout: nodeTimeout})
	wantErr(q, "New", err, nil)
	return b
}

// A node's list is many requests, and may take longer than one. It is no sign of its health.
//
// covers: Q14
func TestListOfNodesThatTakeTheirTime(t *testing.T) {
	quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
		b := q.vastQuorum(0, 30*nodeTimeout, 40*nodeTimeout)
		defer b.Close()
		_, err := b.TryAcquire(q.Context(), claim("k"))
		wantErr(q, "TryAcquire", err, nil)
		n := 0
		for l, err := range b.List(q.Context(), "") {
			if n++; err != nil || l.Key != "k" {
				q.Errorf("List tells of %q, %v", l.Key, err)
			}
		}
		if n != 1 {
			q.Errorf("%d locks listed, want 1", n)
		}
	})
}

// Whoever leaves a List has not seen that a node fails: it is asked on.
//
// covers: A5
func TestListThatItsCallerLeaves(t *testing.T) {
	quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
		b := q.vastQuorum(0, 0, time.Hour)
		defer b.Close()
		for range 5 {
			ctx, cancel := context.WithTimeout(q.Context(), nodeTimeout/2)
			for _, err := range b.List(ctx, "") {
				wantErr(q, "List", err, context.DeadlineExceeded)
			}
			cancel()
		}
		_, err := b.TryAcquire(q.Context(), claim("k"))
		wantErr(q, "TryAcquire", err, nil)
		if n := q.holders("k"); n != 3 {
			q.Errorf("held on %d nodes, want 3", n)
		}
	})
}

// Close ends a List, and does not wait for what is left of it.
//
// covers: C10
func TestListDuringClose(t *testing.T) {
	quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
		b := q.vastQuorum(0, time.Hour, time.Hour)
		go func() {
			time.Sleep(time.Second)
			wantErr(q, "Close", b.Close(), nil)
		}()
		began := time.Now()
		for _, err := range b.List(q.Context(), "") {
			wantErr(q, "List", err, backend.ErrClosed)
		}
		if took := time.Since(began); took > time.Second {
			q.Errorf("List ended after %v, want when the quorum closes after 1s", took)
		}
	})
}

// An away peer cannot be looked at, nor ended by force.
type away struct{ *peer }

func (away) Inspect(context.Context, string) (backend.State, error) {
	return backend.State{}, backend.ErrUnavailable
}

func (away) ForceRelease(context.Context, string, uint64) (backend.Holder, error) {
	return backend.Holder{}, backend.ErrUnavailable
}
