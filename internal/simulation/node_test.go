package simulation

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/counting"
	"github.com/holdfast-go/holdfast/internal/simstore"
	"github.com/holdfast-go/holdfast/waiting"
)

// A node is a simulated server: a store, a clock of its own, and a process that can crash. One that
// counts is like an etcd: it keeps what it has on disk, its leases go by a clock that has no date,
// and so its tokens are counted, from the minimum that a claim asks for.
type node struct {
	w      *world
	index  int
	counts bool
	rate   float64
	gate   gate

	mu     sync.Mutex
	store  *simstore.Store
	down   bool
	offset time.Duration // of its clock
	origin time.Time     // of its clock
	boots  int           // with an empty memory
	sent   map[string]sentMark

	counted counting.Store // of one that counts: store, with its counter
}

// A sentMark is what a node remembers of an owner's releases, for the check that none overtakes its
// own acquire.
type sentMark struct {
	released     uint64 // when the latest release that was executed had been sent
	noneInFlight bool   // and what it said
	boots        int    // of the node when it was executed
	at           time.Duration
}

func newNode(w *world, i int) *node {
	r := w.rand(actorNode + uint64(i))
	n := &node{w: w, index: i, rate: 1, origin: time.Now(), sent: map[string]sentMark{}}
	n.rate += (2*r.Float64() - 1) * 0.009
	if w.v.drift > 0 {
		n.rate = 1 + w.v.drift*r.Float64()
	}
	n.offset = either(r, w.ttl/40)
	if w.faults.apart {
		n.offset = either(r, w.ttl/5)
	}
	n.counts = w.faults.counts && r.IntN(2) == 0
	n.boot(0)
	return n
}

// now is the node's clock. The store calls it.
func (n *node) now() time.Time {
	ran := time.Duration(float64(time.Since(n.origin)) * n.rate)
	if n.w.v.noTime || n.counts {
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
	n.store = simstore.New(simstore.Config{Now: n.now, Quarantine: quarantine})
	n.counted = counting.Store{Store: n.store, Deaf: n.w.v.noWriteBack || n.w.v.noCounter}
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
			n.restart(ctx, fraction(r, ttl), r.IntN(2) == 0)
		}
	}
}

// restart takes the node down for some time. It comes back with its memory, or without. One that
// counts has all on disk.
func (n *node) restart(ctx context.Context, d time.Duration, forgets bool) {
	n.crash(true)
	waiting.Pause(ctx, d)
	n.mu.Lock()
	if (forgets || n.w.v.amnesia) && !n.counts {
		n.boot(n.w.grace)
	}
	n.mu.Unlock()
	n.crash(false)
}

func (n *node) crash(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
}

// fraction draws a part of d.
func fraction(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Float64() * float64(d))
}

// either draws a part of d, or of its opposite.
func either(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration((2*r.Float64() - 1) * float64(d))
}
