package simulation

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/redlock"
	"github.com/holdfast-go/holdfast/waiting"
)

// A client is a process: a locker on a quorum of nodes, each behind a network of its own.
type client struct {
	w      *world
	index  int
	red    *redlock.Backend
	locker *locker.Client[struct{}]
	faulty []*backendtest.FaultyBackend

	ahead time.Duration // how far its wall clock is
	stops float64       // how often it stops when it has heard something
	gate  gate
	clock atomic.Uint64 // of requests

	mu     sync.Mutex
	paused time.Time // until then
}

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

func newClient(w *world, i int) *client {
	c := &client{w: w, index: i}
	r := w.rand(actorClient + 50 + uint64(i))
	if w.faults.apart {
		c.ahead = either(r, w.ttl/2)
	}
	if w.faults.stops {
		c.stops = 0.05 * r.Float64()
	}
	order := r.Perm(len(w.nodes))
	if w.v.minority {
		order = order[:3]
	}
	var nodes []backend.Backend
	for _, j := range order {
		seed := w.seed*64 + uint64(i*8+j)
		faults := backendtest.Swarm(seed, 4*time.Millisecond)
		if r.IntN(2) == 0 {
			faults.Limit = fraction(r, 3*w.ttl/2)
		}
		f := backendtest.FaultyWith(conn{n: w.nodes[j], client: i}, seed, faults)
		c.faulty = append(c.faulty, f)
		nodes = append(nodes, &stamp{Backend: f, c: c, node: j, owners: map[string]int{}})
	}
	var err error
	if c.red, err = redlock.New(nodes,
		redlock.Config{NodeTimeout: 30*time.Millisecond + fraction(r, w.ttl/3)}); err != nil {
		panic(err)
	}
	cfg := locker.Config{TTL: w.ttl, Logger: discard}
	cfg.Wait.Fallback = w.ttl / time.Duration(2+r.IntN(8))
	cfg.Wait.Passes = -1 + 2*r.IntN(2)
	var b backend.Backend = c.red
	if w.v.fromReply {
		b = fromReply{b}
	}
	if c.locker, err = locker.New[struct{}](b, locker.Bare, cfg); err != nil {
		panic(err)
	}
	return c
}

// fromReply makes the locker count its deadline from the reply.
type fromReply struct{ backend.Backend }

func (f fromReply) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	sent := time.Now()
	g, err := f.Backend.TryAcquire(ctx, c)
	g.TTL = max(g.TTL, c.TTL) + time.Since(sent)
	return g, err
}

// awake returns when the client is not paused, and whether it was.
func (c *client) awake() bool {
	c.mu.Lock()
	d := time.Until(c.paused)
	c.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
	return d > 0
}

// pauses stops the client now and then, as a collector or a scheduler does.
func (c *client) pauses(ctx context.Context, r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	for waiting.Pause(ctx, fraction(r, 4*c.w.ttl)) {
		c.pause(fraction(r, 2*c.w.ttl))
	}
}

func (c *client) pause(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = time.Now().Add(d)
}

// work locks and unlocks, in all ways that there are.
func (c *client) work(name string, r *rand.Rand) {
	ttl := c.w.ttl
	for range rounds {
		time.Sleep(length(r, ttl) / 2)
		key := c.w.keys[r.IntN(len(c.w.keys))]
		ctx, cancel := context.WithCancel(context.Background())
		var g *locker.Guard[struct{}]
		var err error
		switch r.IntN(4) {
		case 0:
			g, err = c.locker.TryLock(ctx, key)
		case 1: // cancelled at some moment
			stop := time.AfterFunc(fraction(r, ttl), cancel)
			g, err = c.locker.Lock(ctx, key)
			stop.Stop()
		default:
			g, err = c.locker.Lock(ctx, key, locker.WaitLimit(8*ttl))
		}
		if err == nil {
			c.w.hold(g, name, length(r, ttl))
		}
		cancel()
	}
}

// length draws how long something takes: often no time, and seldom much.
func length(r *rand.Rand, ttl time.Duration) time.Duration {
	switch r.IntN(4) {
	case 0:
		return fraction(r, 3*ttl)
	case 1:
		return fraction(r, ttl/3)
	}
	return fraction(r, ttl/100)
}

// close ends everything, and waits for what is in flight.
func (c *client) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.locker.Shutdown(ctx); err != nil {
		c.w.violate("the locker does not end: %v", err)
	}
	if err := c.red.Close(); err != nil {
		c.w.violate("the quorum does not end: %v", err)
	}
	for _, f := range c.faulty {
		_ = f.Close()
	}
}
