package redlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

const (
	// maxLead: a node whose backlog is over maxLead + 4 × the smallest one is skipped, so that a
	// node that hangs cannot pile up requests before the first of them times out.
	maxLead = 32

	// failureWeight is how many requests in flight a failed one counts for, until the next answer:
	// three in a row are too many.
	failureWeight = 16

	// The first probe of a node that fails comes after minProbe, later ones up to maxProbe apart.
	minProbe = 50 * time.Millisecond
	maxProbe = time.Second

	// probeTimeout bounds a probe, and what a node is asked when it is opened.
	probeTimeout = time.Second

	// maxOwed bounds the releases that are kept for a node. What is beyond runs out by itself.
	maxOwed = 10_000
)

// A node is one of the backends, with its health. Its fields are guarded by mu; b does not change
// once it is set.
type node struct {
	red  *Backend
	name string
	open func(context.Context) (backend.Backend, error) // of a node of a URL; else nil

	inFlight atomic.Int64 // requests
	failed   atomic.Int64 // requests since the last answer
	recheck  atomic.Bool  // whether to ask who it is

	mu        sync.Mutex
	b         backend.Backend // nil until open has succeeded
	id        string          // its Identity, as last seen; empty if unknown
	named     time.Time       // when it last said who it is, or that it has no identity
	barred    error           // why it must not be counted; nil
	owed      []owed
	repairing bool
}

// An owed is a release that a node has not confirmed, and until when it matters.
type owed struct {
	claim backend.Claim
	until time.Time
}

// backend returns the node's backend, or why there is none to be asked.
func (n *node) backend() (backend.Backend, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.barred != nil:
		return nil, n.barred
	case n.b == nil:
		return nil, errSkipped
	}
	return n.b, nil
}

// skipped is the vote of a node that is not asked.
func (n *node) skipped() error {
	if _, err := n.backend(); err != nil {
		return err
	}
	return errSkipped
}

// A send makes one request of a backend.
type send func(context.Context, backend.Backend) error

// do makes one request of a claim.
func (n *node) do(q request) (g backend.Grant, err error) {
	err = n.ask(q.round.ctx, q.round.timeout,
		func(ctx context.Context, b backend.Backend) (err error) {
			switch q.verb {
			case acquire:
				g, err = b.TryAcquire(ctx, q.claim)
			case renew:
				err = b.Renew(ctx, q.claim)
			case release:
				_, err = b.Release(ctx, q.claim)
			}
			return err
		})
	return g, err
}

// ask makes one request, and records whether the node answered.
func (n *node) ask(ctx context.Context, timeout time.Duration, f send) error {
	b, err := n.backend()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	n.inFlight.Add(1)
	err = f(ctx, b)
	n.inFlight.Add(-1)
	if backend.AnswerOf(err) == backend.Unknown && (ctx.Err() != nil ||
		// A moment before ctx.
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		err = timeoutError{timeout}
	}
	n.record(err)
	return err
}

// record takes an answer, or its absence, for a sign of the node's health.
func (n *node) record(err error) {
	switch {
	case !answered(err):
		n.failed.Add(1)
	case n.failed.Load() != 0 && n.failed.Swap(0) != 0:
		n.recheck.Store(true) // it may have been restarted
		n.repair()
	}
}

// answered reports whether err is an answer of a node that is at work.
func answered(err error) bool {
	return backend.AnswerOf(err) != backend.Unknown && !errors.Is(err, backend.ErrUnavailable)
}

// endless is the backlog of a node that cannot be asked: over every limit, and four of it are an
// int64.
const endless = math.MaxInt64 / 8

// backlog is the number that health goes by: requests that have no answer.
func (n *node) backlog() int64 {
	if _, err := n.backend(); err != nil { // safeguard: barred-unhealthy
		return endless
	}
	return n.inFlight.Load() + failureWeight*n.failed.Load()
}

// healthy tells which nodes answer and keep up with the others.
func (r *Backend) healthy() []bool {
	least := int64(endless)
	for _, n := range r.nodes {
		least = min(least, n.backlog())
	}
	healthy := make([]bool, len(r.nodes))
	for i, n := range r.nodes {
		if healthy[i] = n.backlog() <= maxLead+4*least; !healthy[i] && n.failed.Load() > 0 {
			n.repair()
		}
	}
	return healthy
}

// owe makes the node forget claim as soon as it can be reached, for as long as it may hold it. As
// it is not known when that is, the release leaves a tombstone.
func (n *node) owe(claim backend.Claim) {
	claim.NoneInFlight = false
	n.putOwed(owed{claim, time.Now().Add(2 * claim.TTL)})
	n.repair()
}

func (n *node) putOwed(o owed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.owed) == maxOwed {
		n.owed = n.owed[1:]
	}
	n.owed = append(n.owed, o)
}

// takeOwed takes the first release that still matters off the list.
func (n *node) takeOwed() (o owed, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.owed) > 0 && !ok {
		o, n.owed = n.owed[0], n.owed[1:]
		ok = time.Now().Before(o.until)
	}
	return o, ok
}

// repair starts the one goroutine that probes the node while it fails, or to ask who it is, and
// then makes the releases that it is owed.
func (n *node) repair() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.repairing && n.red.enterTask() {
		n.repairing = true
		go n.repairLoop()
	}
}

func (n *node) repairLoop() {
	defer n.red.tasks.Done()
	wait := waiting.NewBackoff(minProbe, maxProbe)
	for waiting.Pause(n.red.ctx, wait.Next()) {
		_, why := n.backend()
		// safeguard: barred-asked-again
		if (n.recheck.Swap(false) || n.failed.Load() > 0 || why != nil) && n.probe() != nil {
			continue
		}
		for o, ok := n.takeOwed(); ok; o, ok = n.takeOwed() {
			timeout := n.red.cfg.timeout(o.claim.TTL)
			err := n.ask(n.red.ctx, timeout, func(ctx context.Context, b backend.Backend) error {
				_, err := b.Release(ctx, o.claim)
				return err
			})
			if !answered(err) {
				n.putOwed(o) // safeguard: owed-again
				break
			}
			wait.Reset()
		}
		if n.repaired() {
			return
		}
	}
}

// repaired ends the repair if nothing is left to do. A node that fails again is repaired when
// somebody wants to ask it.
func (n *node) repaired() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.owed) == 0 && !n.recheck.Load() {
		n.owed, n.repairing = nil, false
	}
	return !n.repairing
}

// probe opens the node if need be, and asks it who it is and something that changes nothing: a
// renewal never creates.
func (n *node) probe() error {
	ctx, cancel := context.WithTimeout(n.red.ctx, probeTimeout)
	defer cancel()
	if err := n.ensureOpen(ctx); err != nil {
		return err
	}
	if err := n.identify(ctx); err != nil {
		return err
	}
	return n.ask(ctx, probeTimeout, func(ctx context.Context, b backend.Backend) error {
		c := backend.Claim{Key: "redlock probe", Owner: backend.NewOwner()}
		c.TTL = max(b.Capabilities().MinTTL, time.Second)
		if err := b.Renew(ctx, c); !answered(err) {
			return err
		}
		return nil
	})
}

// ensureOpen opens a node that could not be opened before. One that can do less than was promised
// for all of them is barred, but for one that needs longer leases: it refuses claims that are too
// short for it, and is a node like any other to the rest.
func (n *node) ensureOpen(ctx context.Context) error {
	n.mu.Lock()
	b := n.b
	n.mu.Unlock()
	if b == nil {
		var err error
		if b, err = n.open(ctx); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.b = b
	need := n.red.caps
	need.MinToken, need.MinTTL = need.Fencing, 0           // safeguard: long-leases-late
	if err := b.Capabilities().Missing(need); err != nil { // safeguard: lesser-node
		n.barred = err
		return err
	}
	return nil
}

// identify asks the node who it is, and bars it if another node is the same: what looks like a
// majority would be one machine. Neither of two is wrong alone, so it is the one that was asked
// last. A node that is barred is asked again and again: it may become another.
func (n *node) identify(ctx context.Context) error {
	n.mu.Lock()
	b, barred := n.b, n.barred
	n.mu.Unlock()
	if b == nil {
		return errSkipped
	}
	asked := time.Now()
	id, err := b.Identity(ctx)
	switch {
	case backend.Refused(err): // it has none, or this user is not told; safeguard: nameless-node
		n.mu.Lock()
		n.named = asked
		n.mu.Unlock()
		return barred
	case err != nil || id == "": // safeguard: nobody-yet
		if ctx.Err() != nil {
			n.failed.CompareAndSwap(0, 1) // so that it is asked again when it answers anything
		}
		return err
	}
	r := n.red
	r.naming.Lock() // one at a time
	defer r.naming.Unlock()
	var twin *node
	for _, other := range r.nodes {
		if other != n && other.identity() == id { // safeguard: one-server-once
			twin = other
		}
	}
	n.mu.Lock()
	n.id, n.named, n.barred = id, asked, nil
	if twin != nil {
		n.id = "" // safeguard: twin-nameless
		n.barred = fmt.Errorf("%w: it is the same server as %s", backend.ErrUnsafe, twin.name)
		err = fmt.Errorf("%s: %w", n.name, n.barred)
	}
	n.mu.Unlock()
	r.relist()
	return err
}

func (n *node) identity() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id
}
