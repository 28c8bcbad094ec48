package redissim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/linear"
	"github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// A client is a process: a locker on a store, behind a network of its own.
type client struct {
	w      *world
	index  int
	nodes  []backend.Backend // those of a quorum; else one
	locker *locker.Client[struct{}]
	alone  []*locker.Client[struct{}] // on single nodes of a quorum
	values *locker.Store[int]
	red    backend.Backend // of a quorum
	dials  atomic.Uint64   // connections made
	lives  map[*server]int // which life each leads to

	mu     sync.Mutex
	paused time.Time          // until then
	slots  map[string]*server // by tag, as the client was told; others are where they were at first
}

// A store is the Redis store as a backend, as the two backends make it.
type store struct{ *redis.Store }

func (s store) Close() error {
	s.Store.Close()
	return nil
}

func (s store) ForceRelease(ctx context.Context, key string, token uint64) (backend.Holder, error) {
	return backend.ForceReleaseBy(ctx, s, key, token)
}

func newClient(w *world, i int) *client {
	c := &client{w: w, index: i, slots: map[string]*server{}}
	r := w.rand(fmt.Sprint("client", i))
	requests := 200*time.Millisecond + fraction(r, 2*w.ttl)
	var b backend.Backend
	if w.kind.quorum {
		b = c.join(r, requests)
		c.red = b
	} else {
		b = remote{l: link{c, w.servers, requests}}
		if !w.kind.records {
			b = newStore(link{c, w.servers, requests}, w.kind.guard)
		}
		c.nodes = []backend.Backend{b}
	}
	lc := c.config(r)
	if w.v.backend != nil {
		b = w.v.backend(b)
	}
	var err error
	if c.locker, err = locker.New[struct{}](b, locker.Bare, lc); err != nil {
		panic(err)
	}
	if w.kind.quorum || w.kind.dialect {
		return c // which keep no values
	}
	if c.values, err = locker.NewStore(b, locker.JSON[int](), lc); err != nil {
		panic(err)
	}
	return c
}

// connect returns which life of a server the client's requests go to from now on, and counts a new
// connection if that is another than before, or if all that there are have something to do. Only
// the network's goroutine calls it.
func (c *client) connect(s *server, busy bool) (life int) {
	life = s.of(c.index).lives
	if c.lives[s] != life || busy {
		if c.lives == nil {
			c.lives = map[*server]int{}
		}
		c.lives[s] = life
		c.dials.Add(1)
	}
	return life
}

// newStore is a client's store, on one server or a cluster.
func newStore(l link, guard bool) store {
	w := l.c.w
	cfg := redis.Config{RequestTimeout: l.requests, Retention: w.retention}
	if guard {
		cfg.MaxTTL, cfg.ReplicaLag = w.ttl, w.kind.lag
	}
	if w.kind.dialect {
		cfg.Dialect = redis.DialectString
	}
	s, err := redis.New(&cfg, "redis")
	if err != nil {
		panic(err)
	}
	s.Use(l)
	s.Waiters().Idle += odd(rand.New(rand.NewPCG(w.seed, uint64(l.c.index))))
	// As a client that makes its connections itself.
	if len(l.to) == 1 && !w.kind.quorum && l.c.index%2 == 0 {
		s.Counts(&l.c.dials)
	}
	if len(l.to) > 1 {
		if err := s.OnCluster(); err != nil {
			panic(err)
		}
	} else {
		s.OnOneServer()
	}
	return store{s}
}

// odd is a little, so that timers that are set at one instant, for what is the same in whole
// milliseconds, do not fire at one.
func odd(r *rand.Rand) time.Duration { return time.Duration(1 + r.IntN(1000)) }

func (c *client) config(r *rand.Rand) locker.Config {
	cfg := locker.Config{TTL: c.w.ttl, Logger: discard, Service: "s"}
	cfg.Wait.Fallback = c.w.ttl/time.Duration(2+r.IntN(8)) + odd(r)
	cfg.Wait.PassTime = []time.Duration{0, c.w.ttl / 2}[r.IntN(2)]
	cfg.StoreTimeout = c.w.ttl + odd(r)
	cfg.Wait.Passes = []int{-1, 1, 8}[r.IntN(3)]
	if !c.w.kind.quorum {
		cfg.Wait.Mode = []waiting.Mode{
			waiting.Auto, waiting.Auto, waiting.Auto, waiting.Auto,
			waiting.Notify, waiting.Poll,
		}[r.IntN(6)]
	}
	return cfg
}

// awakeAt is when the client does at the earliest what it would do at t.
func (c *client) awakeAt(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.Before(c.paused) {
		return c.paused.Add(t.Sub(t.Truncate(time.Microsecond)))
	}
	return t
}

// pauses stops the client's requests and answers now and then, as a scheduler or a network does.
func (c *client) pauses(ctx context.Context, r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	for waiting.Pause(ctx, fraction(r, 4*c.w.ttl)) {
		c.pause(time.Now().Add(fraction(r, 2*c.w.ttl)))
	}
}

func (c *client) pause(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = until
}

// options are those that the key is for, and what a hold with them counts for, where readers are
// many and a writer is alone.
func (c *client) options(key string, r *rand.Rand) (opts []locker.Option, weight int) {
	switch key[0] {
	case 's':
		if r.IntN(3) > 0 {
			return []locker.Option{locker.Shared()}, 1
		}
		return nil, readers
	case 'p':
		n := 1 + r.IntN(limit)
		return []locker.Option{locker.Permit(limit), locker.Weight(n)}, n
	case 'r':
		return []locker.Option{locker.Reentrant(c.owner())}, 1
	}
	return nil, 1
}

// owner is who locks a key that may be entered again: some clients are one.
func (c *client) owner() string { return fmt.Sprint("owner ", c.index%2) }

// work locks and unlocks, in all ways that there are.
func (c *client) work(name string, r *rand.Rand) {
	w := c.w
	for round := range rounds {
		time.Sleep(w.length(r)/2 + time.Duration(1+r.IntN(1000)))
		key := w.keys[r.IntN(len(w.keys))]
		if key[0] == 'v' {
			c.update(key, r)
			continue
		}
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), workerKey{},
			name))
		// Not first of all, when the server is looked at: by which of All's keys Go chooses.
		if pair := w.pair(); pair != nil && r.IntN(4) == 0 && (w.kind.quorum || round > 0) {
			most := 8 * w.ttl
			// Else who holds one and waits for the other says so in the store, under a key that is
			// random.
			if !w.kind.quorum {
				most = w.ttl * 9 / 20
			}
			if err := c.lockAll(ctx, pair, name, most, w.length(r)); err != nil {
				w.unserved(pair[0], err)
			}
			cancel()
			continue
		}
		asked := time.Since(w.net.start)
		var g *locker.Guard[struct{}]
		var err error
		opts, weight := c.options(key, r)
		switch other := r.IntN(8); {
		case key[0] == 'x' && other < 2 && !w.kind.quorum && !w.kind.dialect:
			c.once(ctx, key, name, r)
			cancel()
			continue
		case key[0] == 'p' && other == 0: // which is refused while others hold
			opts, weight = []locker.Option{locker.Permit(limit - 1)}, 1
		}
		switch r.IntN(4) {
		case 0:
			g, err = c.locker.TryLock(ctx, key, opts...)
		case 1: // cancelled at some moment
			stop := time.AfterFunc(fraction(r, w.ttl), cancel)
			g, err = c.locker.Lock(ctx, key, opts...)
			stop.Stop()
		default:
			g, err = c.locker.Lock(ctx, key, append(opts, locker.WaitLimit(8*w.ttl))...)
			if err != nil {
				w.unserved(key, err)
			}
		}
		if err == nil {
			c.hold(g, name, weight, asked, w.length(r))
		}
		cancel()
	}
}

// once runs a job that all do, unless it was done.
func (c *client) once(ctx context.Context, key, name string, r *rand.Rand) {
	w := c.w
	e := history.Event{Worker: name, Key: key, Asked: time.Since(w.net.start)}
	work, every := w.length(r), time.Millisecond+fraction(r, 3*w.ttl)
	ran, err := locker.Once(ctx, c.locker, key, every, func(ctx context.Context, _ struct{}) error {
		h, _ := locker.HoldFrom(ctx)
		e.Token, e.Start = h.Token, time.Since(w.net.start)
		waiting.Pause(ctx, work)
		e.End = time.Since(w.net.start)
		return nil
	}, locker.WaitLimit(8*w.ttl))
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Token == 0 {
		return
	}
	w.events = append(w.events, e)
	w.runs = append(w.runs, jobRun{key, e.Start, every, ran && err == nil})
	w.holds++
}

// update adds one to a stored value.
func (c *client) update(key string, r *rand.Rand) {
	w := c.w
	work := w.length(r) / 4
	op := linear.Op{Verb: linear.Swap, Key: key}
	began := time.Since(w.net.start)
	err := c.values.Update(context.Background(), key, func(_ context.Context, v int) (int, error) {
		time.Sleep(work)
		op.Old, op.Value = v, v+1
		return v + 1, nil
	}, locker.WaitLimit(8*w.ttl))
	if op.Value > 0 {
		w.called(op, began, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds++
}

// length draws how long something takes: often no time, and seldom much.
func (w *world) length(r *rand.Rand) time.Duration {
	ttl := w.ttl
	if w.peaceful {
		return fraction(r, ttl/100)
	}
	switch r.IntN(6) {
	case 0:
		return fraction(r, 3*ttl)
	case 1:
		return fraction(r, ttl/3)
	case 2:
		return fraction(r, 100*time.Microsecond)
	}
	return fraction(r, ttl/100)
}

// close ends everything, and waits for what is in flight.
func (c *client) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := c.locker.Shutdown(ctx)
	for _, l := range c.alone {
		err = errors.Join(err, l.Shutdown(ctx))
	}
	if c.values != nil {
		err = errors.Join(err, c.values.Close())
	}
	if c.red != nil {
		err = errors.Join(err, c.red.Close())
	}
	if err != nil {
		c.w.violate("client %d does not end: %v", c.index, err)
	}
	for _, n := range c.nodes {
		_ = n.Close()
		if _, records := n.(remote); records || c.w.kind.quorum {
			continue
		}
		for _, key := range c.w.keys { // what is known of it natively, too
			claim := backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: c.w.ttl}
			if _, err := n.TryAcquire(context.Background(), claim); !errors.Is(err,
				backend.ErrClosed) {
				c.w.violate("client %d is closed, and answers %v", c.index, err)
			}
		}
	}
}
