package simulation

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/memstore"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/redlock"
	"github.com/holdfast-go/holdfast/waiting"
)

// A variant is the world with a safeguard removed, or with a fault beyond what is promised.
type variant struct {
	name   string
	budget int // seeds within which it must be found

	noQuarantine bool    // a node that forgot grants at once
	noWriteBack  bool    // a token is not stored by the majority
	noTime       bool    // a node that forgot counts from nothing
	noTombstone  bool    // a release leaves nothing behind
	fromReply    bool    // the deadline is counted from the reply
	minority     bool    // clients use different lists of nodes: their majorities need not meet
	amnesia      bool    // every restart loses the memory
	drift        float64 // clocks run faster than they may
	blind        bool    // for tests of the simulation
}

// A world is one run of one seed.
type world struct {
	v        variant
	seed     uint64
	ttl      time.Duration
	grace    time.Duration // a node's quarantine
	calmness time.Duration // between a node's crashes, at most
	caps     backend.Capabilities
	keys     []string
	nodes    []*node
	clients  []*client
	start    time.Time
	clock    atomic.Uint64 // of requests
	log      history.Log

	mu    sync.Mutex
	found []string
	holds int
}

func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, fmt.Sprintf(format, args...))
}

// rand returns the random numbers of one actor.
func (w *world) rand(actor uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, actor)) }

// Actors' numbers.
const (
	actorWorld  = 1
	actorNode   = 100
	actorClient = 200
	actorWorker = 300
	actorNet    = 1000
)

const rounds = 6 // of each worker

// run simulates a seed, and returns what was found wrong and how many locks were held.
func run(t *testing.T, seed uint64, v variant) (found []string, holds int) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(seed, v)
		w.run()
		found, holds = w.found, w.holds
	})
	return found, holds
}

func newWorld(seed uint64, v variant) *world {
	w := &world{v: v, seed: seed, ttl: 2 * time.Second, start: time.Now(), keys: []string{"a", "b"}}
	r := w.rand(actorWorld)
	w.grace = w.ttl + w.ttl/50 + time.Second
	w.calmness = w.ttl/2 + fraction(r, 8*w.ttl)
	w.caps = memstore.New(memstore.Config{}).Capabilities()
	w.keys = w.keys[:1+r.IntN(2)]
	n := 3 + 2*r.IntN(2)
	if v.minority {
		n = 5
	}
	for i := range n {
		w.nodes = append(w.nodes, newNode(w, w.rand(actorNode+uint64(i))))
	}
	for i := range 2 + r.IntN(3) {
		w.clients = append(w.clients, newClient(w, i))
	}
	return w
}

// run lets everybody work under faults, then ends the faults and sees that everything goes on.
func (w *world) run() {
	ctx, calm := context.WithCancel(context.Background())
	var chaos, work sync.WaitGroup
	for i, n := range w.nodes {
		chaos.Go(func() { n.chaos(ctx, w.rand(actorNode+50+uint64(i))) })
	}
	for i, c := range w.clients {
		chaos.Go(func() { c.pauses(ctx, w.rand(actorClient+uint64(i))) })
		for j := range 2 {
			work.Go(func() { c.work(fmt.Sprintf("%d.%d", i, j), w.rand(actorWorker+uint64(10*i+j))) })
		}
	}
	work.Wait()
	calm()
	chaos.Wait()
	for _, n := range w.nodes {
		n.crash(false)
	}
	for _, c := range w.clients {
		for _, f := range c.faulty {
			f.Calm()
		}
	}
	time.Sleep(2 * w.ttl) // until nobody is paused any more
	w.goesOn()
	for _, c := range w.clients {
		c.close()
	}
	if err := history.Join(history.Check(w.log.Events())); err != nil {
		w.violate("%v", err)
	}
}

// goesOn sees that with all nodes back, and those that forgot out of quarantine, everybody gets every key in time.
func (w *world) goesOn() {
	limit := w.grace + 4*w.ttl
	for _, c := range w.clients {
		for _, key := range w.keys {
			g, err := c.locker.Lock(context.Background(), key, locker.WaitLimit(limit))
			if err != nil {
				w.violate("all faults are over for %v, and still Lock(%q) = %v", limit, key, err)
				continue
			}
			w.hold(g, "end", 0)
		}
	}
}

// hold records a belief that lasts for d, or until it is lost.
func (w *world) hold(g *locker.Guard[struct{}], worker string, d time.Duration) {
	e := history.Event{Worker: worker, Key: g.Hold().Key, Token: g.Hold().Token, Start: time.Since(w.start)}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.Lost():
	}
	e.End = min(time.Since(w.start), g.Until().Sub(w.start))
	_ = g.Unlock()
	w.log.Add(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds++
}

// A client is a process: a locker on a quorum of nodes, each behind a network of its own.
type client struct {
	w      *world
	red    *redlock.Backend
	locker *locker.Client[struct{}]
	faulty []*backendtest.FaultyBackend

	mu     sync.Mutex
	paused time.Time // until then
}

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

func newClient(w *world, i int) *client {
	c := &client{w: w}
	r := w.rand(actorClient + 50 + uint64(i))
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
		f := backendtest.FaultyWith(conn{n: w.nodes[j]}, seed, faults)
		c.faulty = append(c.faulty, f)
		nodes = append(nodes, stamp{f, c})
	}
	var err error
	if c.red, err = redlock.New(nodes, redlock.Config{NodeTimeout: 30*time.Millisecond + fraction(r, w.ttl/3)}); err != nil {
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

// awake returns when the client is not paused.
func (c *client) awake() {
	c.mu.Lock()
	d := time.Until(c.paused)
	c.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
}

// pauses stops the client now and then, as a collector or a scheduler does.
func (c *client) pauses(ctx context.Context, r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	for waiting.Pause(ctx, fraction(r, 4*c.w.ttl)) {
		c.mu.Lock()
		c.paused = time.Now().Add(fraction(r, 2*c.w.ttl))
		c.mu.Unlock()
	}
}

// work locks and unlocks, in all ways that there are.
func (c *client) work(name string, r *rand.Rand) {
	ttl := c.w.ttl
	for range rounds {
		time.Sleep(fraction(r, ttl/2))
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
			d := fraction(r, ttl/3)
			if r.IntN(4) == 0 {
				d = fraction(r, 3*ttl)
			}
			c.w.hold(g, name, d)
		}
		cancel()
	}
}

// close ends everything, and waits for what is on its way.
func (c *client) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.locker.Close(ctx); err != nil {
		c.w.violate("the locker does not end: %v", err)
	}
	if err := c.red.Close(); err != nil {
		c.w.violate("the quorum does not end: %v", err)
	}
	for _, f := range c.faulty {
		_ = f.Close()
	}
}
