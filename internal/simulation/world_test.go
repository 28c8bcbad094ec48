package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/simstore"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// A variant is the world with a safeguard removed, or with a fault beyond what is promised.
type variant struct {
	name   string
	budget int // seeds within which it must be found

	noQuarantine bool // a node that forgot grants at once
	noWriteBack  bool // a token is not stored by the majority
	noTime       bool // a node that forgot counts from nothing
	// a node that counts tells the minimum token that was asked for, and does not keep it
	noCounter   bool
	noTombstone bool    // a release leaves nothing behind
	fromReply   bool    // the deadline is counted from the reply
	minority    bool    // clients use different lists of nodes: their majorities need not meet
	amnesia     bool    // every restart loses the memory
	drift       float64 // clocks run faster than they may
	blind       bool    // for tests of the simulation
	traced      bool    // for tests of the simulation

	needs faults // without which the safeguard is not needed
}

// faults are the kinds that a seed has or has not, beside those that each has.
type faults struct {
	cuts  bool // power cuts, which restart a majority at once
	apart bool // wall clocks that are set differently, on nodes and clients
	stops bool // clients that stop after an answer, before they see it

	// Nodes that count their tokens, as etcd does. Other variants, whose rates were measured
	// without, have none.
	counts bool
}

// A world is one run of one seed.
type world struct {
	v        variant
	seed     uint64
	ttl      time.Duration
	grace    time.Duration // a node's quarantine
	calmness time.Duration // between a node's crashes, at most
	faults   faults
	caps     backend.Capabilities
	keys     []string
	nodes    []*node
	clients  []*client
	start    time.Time
	quiet    atomic.Bool
	held     chan struct{} // has something in its one slot when somebody has begun to hold
	log      history.Log
	trace    trace

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
	actorCuts   = 2
	actorCounts = 3
	actorNode   = 100
	actorClient = 200
	actorWorker = 300
)

const rounds = 8 // of each worker

// run simulates a seed, and returns what was found wrong and how many locks were held.
func run(t *testing.T, seed uint64, v variant) (found []string, holds int) {
	t.Helper()
	return runThen(t, seed, v, nil)
}

// runThen is run, and then looks at the world.
func runThen(t *testing.T, seed uint64, v variant,
	then func(w *world),
) (found []string, holds int) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(seed, v)
		w.run()
		found, holds = w.found, w.holds
		if then != nil {
			then(w)
		}
	})
	return found, holds
}

func newWorld(seed uint64, v variant) *world {
	w := &world{
		v: v, seed: seed, ttl: 2 * time.Second, keys: []string{"a", "b"},
		held: make(chan struct{}, 1),
	}
	r := w.rand(actorWorld)
	time.Sleep(fraction(r, 24*time.Hour)) // what the code under test draws follows from the time
	w.start = time.Now()
	w.trace.begin(w, v.traced)
	w.grace = w.ttl + w.ttl/50 + time.Second
	w.calmness = w.ttl/2 + fraction(r, 8*w.ttl)
	w.faults = faults{
		cuts: r.IntN(2) == 0 || v.needs.cuts, apart: r.IntN(2) == 0 ||
			v.needs.apart, stops: r.IntN(2) == 0 || v.needs.stops,
	}
	w.faults.counts = v.needs.counts || v.budget == 0 && w.rand(actorCounts).IntN(2) == 0
	w.caps = simstore.New(simstore.Config{}).Capabilities()
	w.keys = w.keys[:1+r.IntN(2)]
	n := 3 + 2*r.IntN(2)
	if v.minority {
		n = 5
	}
	for i := range n {
		w.nodes = append(w.nodes, newNode(w, i))
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
	if w.faults.cuts {
		chaos.Go(func() { w.cuts(ctx, w.rand(actorCuts)) })
	}
	for i, c := range w.clients {
		chaos.Go(func() { c.pauses(ctx, w.rand(actorClient+uint64(i))) })
		for j := range 2 {
			work.Go(func() {
				c.work(fmt.Sprintf("%d.%d", i, j), w.rand(actorWorker+uint64(10*i+j)))
			})
		}
	}
	work.Wait()
	calm()
	w.quiet.Store(true)
	chaos.Wait()
	for _, n := range w.nodes {
		n.crash(false)
	}
	for _, c := range w.clients {
		for _, f := range c.faulty {
			f.EndFaults()
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

// cuts restarts a majority at once, or nearly, soon after somebody has begun to hold: all come back
// with their memory, or all without.
func (w *world) cuts(ctx context.Context, r *rand.Rand) {
	for waiting.Pause(ctx, w.ttl/2+fraction(r, w.calmness)) {
		select {
		case <-w.held:
		default:
		}
		select {
		case <-w.held:
		case <-ctx.Done():
			return
		}
		waiting.Pause(ctx, fraction(r, w.ttl/20))
		forget := r.IntN(2) == 0
		for _, i := range r.Perm(len(w.nodes))[:len(w.nodes)/2+1] {
			w.nodes[i].restart(ctx, fraction(r, w.ttl/50), forget)
		}
	}
}

// goesOn sees that with all nodes back, and those that forgot out of quarantine, everybody gets
// every key in time.
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
	e := history.Event{
		Worker: worker, Key: g.Hold().Key, Token: g.Hold().Token,
		Start: time.Since(w.start),
	}
	select {
	case w.held <- struct{}{}:
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.Lost():
	}
	e.End = min(time.Since(w.start), g.Until().Sub(w.start))
	_ = g.Unlock()
	w.log.Add(e)
	if w.trace.on {
		w.trace.add("%s held %s until %v with %d", worker, e.Key, e.End, e.Token)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds++
}
