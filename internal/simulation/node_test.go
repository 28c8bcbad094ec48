package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/memstore"
	"github.com/holdfast-go/holdfast/waiting"
)

// A node is a simulated server: a store, a clock of its own, and a process that can crash.
type node struct {
	w    *world
	rate float64

	mu     sync.Mutex
	store  *memstore.Store
	down   bool
	offset time.Duration // of its clock
	origin time.Time     // of its clock
	boots  int           // with an empty memory
	sent   map[string]sentMark
}

// A sentMark is what a node remembers of an owner's releases, for the check that none overtakes its own acquire.
type sentMark struct {
	released uint64 // when the latest release that was executed had been sent
	settled  bool   // and what it said
	boots    int    // of the node when it was executed
	at       time.Duration
}

func newNode(w *world, r *rand.Rand) *node {
	n := &node{w: w, rate: 1, origin: time.Now(), sent: map[string]sentMark{}}
	n.rate += (2*r.Float64() - 1) * 0.009
	if w.v.drift > 0 {
		n.rate = 1 + w.v.drift*r.Float64()
	}
	n.offset = time.Duration((2*r.Float64() - 1) * float64(50*time.Millisecond))
	n.boot(0)
	return n
}

// now is the node's clock. The store calls it.
func (n *node) now() time.Time {
	ran := time.Duration(float64(time.Since(n.origin)) * n.rate)
	if n.w.v.noTime {
		return time.Unix(1000, 0).Add(ran)
	}
	return n.origin.Add(ran + n.offset).Round(0)
}

// boot starts with an empty memory.
func (n *node) boot(quarantine time.Duration) {
	if n.w.v.noQuarantine {
		quarantine = 0
	}
	if n.w.v.noTime {
		n.origin = time.Now()
	}
	n.boots++
	n.store = memstore.New(memstore.Config{Now: n.now, Quarantine: quarantine})
}

// chaos crashes the node and steps its clock, until ctx is done.
func (n *node) chaos(ctx context.Context, r *rand.Rand) {
	ttl := n.w.ttl
	for waiting.Pause(ctx, ttl/2+fraction(r, n.w.calmness)) {
		switch r.IntN(4) {
		case 0: // back, by a little: forward is what no lease survives
			n.mu.Lock()
			if step := fraction(r, ttl/20); n.offset > -ttl/4 {
				n.offset -= step
			}
			n.mu.Unlock()
		default:
			n.crash(true)
			waiting.Pause(ctx, fraction(r, ttl))
			n.mu.Lock()
			if r.IntN(2) == 0 || n.w.v.amnesia {
				n.boot(n.w.grace)
			}
			n.mu.Unlock()
			n.crash(false)
		}
	}
}

func (n *node) crash(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
}

// A conn is a client's connection to a node, without a network.
type conn struct {
	backend.Base
	n *node
}

// do executes one request. The store's clock is read with the node locked.
func (c conn) do(f func(s *memstore.Store) error) error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.n.down {
		return fmt.Errorf("%w: it is down", backend.ErrUnavailable)
	}
	return f(c.n.store)
}

func (c conn) Capabilities() backend.Capabilities { return c.n.w.caps }

func (c conn) TryAcquire(ctx context.Context, cl backend.Claim) (g backend.Grant, err error) {
	err = c.do(func(s *memstore.Store) (err error) {
		if g, err = s.Acquire(cl); err == nil && sentAt(ctx) < c.n.sent[cl.Key+cl.Owner].released {
			mark := c.n.sent[cl.Key+cl.Owner]
			c.n.w.violate("after %v an attempt took %q on a node where its own release had been at %v (settled: %v, restarts since: %d)",
				time.Since(c.n.w.start), cl.Key, mark.at, mark.settled, c.n.boots-mark.boots)
		}
		return err
	})
	return g, err
}

func (c conn) Renew(_ context.Context, cl backend.Claim) error {
	if c.n.w.v.noWriteBack {
		cl.Floor = 0
	}
	return c.do(func(s *memstore.Store) error { return s.Renew(cl) })
}

func (c conn) Release(ctx context.Context, cl backend.Claim) error {
	if c.n.w.v.noTombstone {
		cl.Settled = true
	}
	return c.do(func(s *memstore.Store) error {
		k := cl.Key + cl.Owner
		if !c.n.w.v.blind {
			c.n.sent[k] = sentMark{max(c.n.sent[k].released, sentAt(ctx)), cl.Settled, c.n.boots, time.Since(c.n.w.start)}
		}
		return s.Release(cl)
	})
}

func (c conn) Watch(ctx context.Context, cl backend.Claim) (<-chan backend.Wake, error) {
	var wake <-chan backend.Wake
	err := c.do(func(s *memstore.Store) error { wake = s.Watch(ctx, cl); return nil })
	return wake, err
}

func (c conn) Inspect(_ context.Context, key string) (state backend.State, err error) {
	err = c.do(func(s *memstore.Store) error { state = s.Inspect(key); return nil })
	return state, err
}

func (c conn) Close() error { return nil }

// A stamp notes in which order a client sends, and lets a paused client neither send nor hear.
type stamp struct {
	backend.Backend
	c *client
}

type sentKey struct{}

func sentAt(ctx context.Context) uint64 {
	n, _ := ctx.Value(sentKey{}).(uint64)
	return n
}

func (s stamp) sent(ctx context.Context) context.Context {
	s.c.awake()
	return context.WithValue(ctx, sentKey{}, s.c.w.clock.Add(1))
}

func (s stamp) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	defer s.c.awake()
	return s.Backend.TryAcquire(s.sent(ctx), c)
}

func (s stamp) Renew(ctx context.Context, c backend.Claim) error {
	defer s.c.awake()
	return s.Backend.Renew(s.sent(ctx), c)
}

func (s stamp) Release(ctx context.Context, c backend.Claim) error {
	defer s.c.awake()
	return s.Backend.Release(s.sent(ctx), c)
}

// fraction draws a part of d.
func fraction(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Float64() * float64(d))
}
