package redlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/chance"
)

// A Backend is a majority of nodes. Its methods may be called concurrently.
type Backend struct {
	backend.Base
	cfg    Config
	nodes  []*node
	quorum int
	caps   capabilities
	owned  bool         // the nodes were opened by us, and are closed by us
	round  atomic.Int64 // nanoseconds that an acquisition takes, on average

	ctx    context.Context // of what goes on without a caller; ends with Close
	cancel context.CancelFunc

	naming sync.Mutex // held while a node's identity is compared with the others'
	list   atomic.Pointer[string]

	mu     sync.Mutex // guards the rest, and tasks.Add against tasks.Wait
	closed bool
	tasks  sync.WaitGroup
	runs   map[runKey]*claimRun
}

var (
	_ backend.Backend = (*Backend)(nil)
)

// New returns a majority of nodes. An even number of them is allowed, and tolerates no more failures than one less. The nodes stay
// the caller's, and are to be closed after the Backend.
//
// Nodes that are a [backend.Identifier] are asked who they are, for a second at most: the same server listed twice is an error
// that is [backend.ErrUnsafe], as what looks like a majority would be one machine. A node that does not answer is looked at when it does.
func New(nodes []backend.Backend, cfg Config) (*Backend, error) {
	all := make([]*node, len(nodes))
	for i, b := range nodes {
		if b == nil {
			return nil, fmt.Errorf("redlock: %w", &backend.InvalidError{Field: "nodes", Reason: "node " + strconv.Itoa(i+1) + " is nil"})
		}
		all[i] = &node{name: "node " + strconv.Itoa(i+1), b: b}
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	r, err := newBackend(ctx, all, cfg)
	if err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	return r, nil
}

func newBackend(ctx context.Context, nodes []*node, cfg Config) (*Backend, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, &backend.InvalidError{Field: "nodes", Reason: "there are none"}
	}
	r := &Backend{cfg: cfg, nodes: nodes, quorum: len(nodes)/2 + 1, runs: map[runKey]*claimRun{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.round.Store(int64(time.Millisecond))
	r.caps = intersection(nodes)
	r.listed()
	answers := make(chan error, len(nodes))
	for _, n := range nodes {
		n.red = r
		go func() { answers <- r.identify(ctx, n) }()
	}
	var unsafe error
	for range nodes {
		if err := <-answers; errors.Is(err, backend.ErrUnsafe) {
			unsafe = err
		}
	}
	if unsafe != nil {
		r.cancel()
		return nil, unsafe
	}
	for _, n := range nodes {
		if _, err := n.backend(); err != nil { // not open yet
			n.sick.Store(true)
			n.startProbe()
		}
	}
	return r, nil
}

// identify asks a node who it is, if it can tell, and bars it if another node is the same. Then neither of two would be wrong alone,
// so it is the one that was looked at last.
func (r *Backend) identify(ctx context.Context, n *node) error {
	b, err := n.backend()
	if b == nil && err != nil && n.barred() == nil {
		return err
	}
	n.mu.Lock()
	node := n.b // also if it is barred: it may have become another
	n.mu.Unlock()
	id, asked := node.Identity(ctx)
	switch {
	case errors.Is(asked, errors.ErrUnsupported):
		return err
	case asked != nil || id == "":
		if ctx.Err() != nil {
			n.fails.CompareAndSwap(0, 1) // so that it is asked again when it answers anything, which is once in probeLimit at most
		}
		return asked
	}
	return r.claimIdentity(n, id)
}

// claimIdentity records id as n's, unless another node has it.
func (r *Backend) claimIdentity(n *node, id string) error {
	r.naming.Lock() // one at a time
	defer r.naming.Unlock()
	defer r.listed()
	var twin *node
	for _, other := range r.nodes {
		if other != n && other.identity() == id {
			twin = other
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.id, n.why = id, nil
	if twin != nil {
		n.id = ""
		n.why = fmt.Errorf("%w: it is the same server as %s", backend.ErrUnsafe, twin.name)
		return fmt.Errorf("%s: %w", n.name, n.why)
	}
	return nil
}

func (n *node) identity() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id
}

func (n *node) barred() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.why
}

// capabilities are those of a Backend, which are what all nodes can do and a majority can keep.
type capabilities struct{ backend.Capabilities }

// capsOf is what one node brings into a majority.
func capsOf(b backend.Backend) backend.Capabilities {
	caps := b.Capabilities()
	return backend.Capabilities{
		Shared: caps.Shared, Fencing: caps.Fencing && caps.MinToken, Watch: caps.Watch, Inspect: caps.Inspect, MinTTL: caps.MinTTL,
		MinToken: caps.MinToken,
	}
}

func intersection(nodes []*node) capabilities {
	c := backend.Capabilities{Shared: true, Fencing: true, Watch: true, Inspect: true, MinTTL: minTTL}
	for _, n := range nodes {
		if n.b == nil {
			continue
		}
		caps := capsOf(n.b)
		c.Shared, c.Fencing = c.Shared && caps.Shared, c.Fencing && caps.Fencing
		c.Watch, c.Inspect = c.Watch && caps.Watch, c.Inspect && caps.Inspect
		c.MinTTL = max(c.MinTTL, caps.MinTTL)
	}
	return capabilities{c}
}

// need is what a node must have to be one of us.
func (c capabilities) need() backend.Capabilities {
	need := c.Capabilities
	need.MinToken = need.Fencing
	return need
}

// Capabilities says what a majority of these nodes can do: at most what all of them can. Fencing needs nodes that have
// [backend.Capabilities].MinToken.
func (r *Backend) Capabilities() backend.Capabilities { return r.caps.Capabilities }

// begin counts a task in, unless Close was called.
func (r *Backend) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.tasks.Add(1)
	return true
}

// Close implements [backend.Backend]. It waits for the requests that are under way, each of which is bounded by the node timeout, so
// that a release that a majority has confirmed reaches the other nodes as well.
func (r *Backend) Close() error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.tasks.Wait()
	var errs []error
	if first && r.owned {
		for _, n := range r.nodes {
			if n.b != nil {
				errs = append(errs, n.b.Close())
			}
		}
	}
	return errors.Join(errs...)
}

// asked returns which nodes a request goes to: those that answer, and keep up, if they can be a majority, else all.
func (r *Backend) asked() []bool {
	asked, well := make([]bool, len(r.nodes)), 0
	least := int32(math.MaxInt32 / 8)
	for _, n := range r.nodes {
		if !n.sick.Load() {
			least = min(least, n.waiting.Load())
		}
	}
	for i, n := range r.nodes {
		if asked[i] = !n.sick.Load() && n.waiting.Load() <= lag+4*least; asked[i] {
			well++
		}
	}
	if well < r.quorum {
		for i := range asked {
			asked[i] = true
		}
	}
	return asked
}

// took learns how long an acquisition takes: at once if it takes longer, and slowly if it does not.
func (r *Backend) took(d time.Duration) {
	old := r.round.Load()
	r.round.Store(max(int64(d), old+(int64(d)-old)/8))
}

// apart is how long a claim waits that met another halfway: at random, and longer than an acquisition takes, so that one of the two is
// through before the other asks again. The more often that happened, the longer.
func (r *Backend) apart(times int) time.Duration {
	d := min(max(time.Duration(r.round.Load()), time.Millisecond), longest)
	return d + chance.N(d<<min(times, 4))
}
