package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A Backend is a majority of nodes. Its methods may be called concurrently.
type Backend struct {
	backend.Base
	cfg    Config
	nodes  []*node
	quorum int
	caps   backend.Capabilities
	owned  bool // the nodes were opened by us, and are closed by us

	ctx    context.Context // of what goes on without a caller; ends with Close
	cancel context.CancelFunc

	naming sync.Mutex // held while a node's identity is compared with the others'
	// when all nodes were last asked because a list looked different; guarded by naming
	doubt time.Time
	list  atomic.Pointer[string] // of nodes, as others are shown it

	mu     sync.Mutex
	claims map[claimKey]*claim

	closing sync.Mutex // guards closed, and tasks.Add against tasks.Wait; taken last
	closed  bool
	tasks   sync.WaitGroup
}

var _ backend.Backend = (*Backend)(nil)

// New returns a majority of nodes. An even number of them is allowed, and tolerates no more
// failures than one less. The nodes stay the caller's, and are to be closed after the Backend.
//
// Nodes are asked for their Identity, for a second at most: the same server listed twice is an
// error that is [backend.ErrUnsafe], as what looks like a majority would be one machine. A node
// that does not answer is asked when it does.
func New(nodes []backend.Backend, cfg Config) (*Backend, error) {
	all := make([]*node, len(nodes))
	for i, b := range nodes {
		if b == nil {
			bad := &backend.InvalidError{
				Field:  "nodes",
				Reason: "node " + strconv.Itoa(i+1) + " is nil",
			}
			return nil, fmt.Errorf("redlock: %w", bad)
		}
		all[i] = &node{name: "node " + strconv.Itoa(i+1), b: b}
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
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
	// safeguard: majority
	r := &Backend{cfg: cfg, nodes: nodes, quorum: len(nodes)/2 + 1, caps: capabilities(nodes)}
	r.claims = map[claimKey]*claim{}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.relist()
	for _, n := range nodes {
		n.red = r
	}
	errs := make([]error, len(nodes))
	var asked sync.WaitGroup
	for i, n := range nodes {
		asked.Go(func() { errs[i] = n.identify(ctx) })
	}
	asked.Wait()
	for _, err := range errs {
		if errors.Is(err, backend.ErrUnsafe) {
			r.cancel()
			r.tasks.Wait()
			return nil, err
		}
	}
	for _, n := range nodes {
		if n.b == nil {
			n.failed.Store(3)
			n.repair()
		}
	}
	return r, nil
}

// capabilities is what all nodes can do and a majority can keep.
func capabilities(nodes []*node) backend.Capabilities {
	all := backend.Capabilities{
		Name: "redlock", Fencing: true, Watch: true, Inspect: true,
		Observe: true, MinTTL: minTTL,
	}
	for _, n := range nodes {
		if n.b == nil {
			continue
		}
		caps := n.b.Capabilities()
		all.Fencing = all.Fencing && caps.Fencing && caps.MinToken // safeguard: tokens-in-order
		all.Watch, all.Inspect = all.Watch && caps.Watch, all.Inspect && caps.Inspect
		all.Observe = all.Observe && caps.Observe
		all.MinTTL = max(all.MinTTL, caps.MinTTL)
	}
	return all
}

// Capabilities says what a majority of these nodes can do: at most what all of them can. Fencing
// needs nodes that have [backend.Capabilities].MinToken.
func (r *Backend) Capabilities() backend.Capabilities { return r.caps }

// start is what every call begins with. On success the caller ends with tasks.Done.
func (r *Backend) start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !r.enterTask() {
		return backend.ErrClosed
	}
	return nil
}

// enterTask counts a task in, unless Close was called.
func (r *Backend) enterTask() bool {
	r.closing.Lock()
	defer r.closing.Unlock()
	if r.closed {
		return false
	}
	r.tasks.Add(1)
	return true
}

// Close implements [backend.Backend]. It waits for the requests that are in flight or queued, each
// of which is bounded by the node timeout, so that a release that a majority has confirmed reaches
// the other nodes as well.
func (r *Backend) Close() error {
	r.closing.Lock()
	first := !r.closed
	r.closed = true
	r.closing.Unlock()
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
