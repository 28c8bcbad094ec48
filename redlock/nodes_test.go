package redlock_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/redlock"
)

// A peer is a node of a test, which can hang, be refused, be slow and lose replies, and which notes
// what it is asked.
type peer struct {
	*membackend.Backend
	mu     sync.Mutex
	hang   bool   // verbs wait for the end of their ctx and do nothing
	stuck  string // requests of this verb hang
	refuse bool
	why    error         // if it is not that it does not serve
	slow   time.Duration // before an acquire is executed
	mute   bool          // executed, and then as if hung
	late   bool          // acquires get no answer, and are executed by deliver
	// tokens that it reserves at most, as a server whose counter is ahead of its clock; 0: all
	most  int
	asked int      // requests of any kind
	verbs []string // executed, in order

	delayed []backend.Claim
}

func newPeer(cfg membackend.Config) *peer { return &peer{Backend: membackend.NewWith(cfg)} }

func (p *peer) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *peer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// executed returns the verbs that p has executed, in order.
func (p *peer) executed() (verbs []string) {
	p.set(func() { verbs = slices.Clone(p.verbs) })
	return verbs
}

// do carries a request of verb, as the peer's state has it.
func (p *peer) do(ctx context.Context, verb string, f func() error) error {
	p.mu.Lock()
	p.asked++
	hang, refuse, mute, slow := p.hang || p.stuck == verb, p.refuse, p.mute, p.slow
	why := cmp.Or(p.why, backend.ErrUnavailable)
	p.mu.Unlock()
	switch {
	case refuse:
		return why
	case hang:
		<-ctx.Done()
		return ctx.Err()
	}
	if verb == "acquire" && slow > 0 {
		time.Sleep(slow)
	}
	err := f()
	p.set(func() { p.verbs = append(p.verbs, verb) })
	if mute {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (p *peer) TryAcquire(ctx context.Context, c backend.Claim) (g backend.Grant, err error) {
	var late bool
	p.set(func() {
		if p.most > 0 {
			c.Reserve = min(c.Reserve, p.most)
		}
		if late = p.late; late {
			p.asked++
			p.delayed = append(p.delayed, c)
		}
	})
	if late {
		<-ctx.Done()
		return g, ctx.Err()
	}
	err = p.do(ctx, "acquire", func() (err error) {
		g, err = p.Backend.TryAcquire(context.WithoutCancel(ctx), c)
		return err
	})
	return g, err
}

// deliver executes the acquires that were late, and returns how many there were and what became of
// the last one.
func (p *peer) deliver() (n int, err error) {
	for _, c := range p.delayed {
		_, err = p.Backend.TryAcquire(context.Background(), c)
	}
	return len(p.delayed), err
}

func (p *peer) Renew(ctx context.Context, c backend.Claim) error {
	return p.do(ctx, "renew", func() error { return p.Backend.Renew(ctx, c) })
}

func (p *peer) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	return backend.Released{}, p.do(ctx, "release", func() error {
		return storetest.Release(context.WithoutCancel(ctx), p.Backend, c)
	})
}

// A quorum is a Backend under test with its nodes.
type quorum struct {
	*testing.T
	*redlock.Backend
	peers []*peer
}

// quorumTest runs f in a bubble, with a quorum of n peers.
func quorumTest(t *testing.T, n int, cfg redlock.Config, f func(q *quorum)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := &quorum{T: t}
		for range n {
			q.peers = append(q.peers, newPeer(membackend.Config{}))
		}
		q.Backend = q.client(cfg)
		defer func() {
			if err := q.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
		}()
		f(q)
	})
}

// client returns another Backend on the same nodes.
func (q *quorum) client(cfg redlock.Config) *redlock.Backend {
	q.Helper()
	var nodes []backend.Backend
	for _, p := range q.peers {
		nodes = append(nodes, p)
	}
	b, err := redlock.New(nodes, cfg)
	if err != nil {
		q.Fatal(err)
	}
	return b
}

func claim(key string) backend.Claim {
	return backend.Claim{
		Key: key, Owner: backend.NewOwner(), TTL: 30 * time.Second,
		NoneInFlight: true,
	}
}

func (q *quorum) acquire(c backend.Claim) backend.Grant {
	q.Helper()
	g, err := q.TryAcquire(q.Context(), c)
	if err != nil {
		q.Fatalf("TryAcquire = %v", err)
	}
	return g
}

func (q *quorum) release(c backend.Claim) {
	q.Helper()
	if _, err := q.Release(q.Context(), c); err != nil {
		q.Fatalf("Release = %v", err)
	}
}

// holders is how many nodes have a hold of key, after everything that is under way.
func (q *quorum) holders(key string) (n int) {
	synctest.Wait()
	for _, p := range q.peers {
		state, err := p.Inspect(context.Background(), key)
		if err != nil {
			q.Fatal(err)
		}
		n += len(state.Holders)
	}
	return n
}

func wantErr(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s = %v, want an error that is %q", what, err, target)
	}
}
