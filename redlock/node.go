package redlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

const (
	// sickAfter is how many requests in a row must fail for a node to be passed over.
	sickAfter = 3

	// lag is by how many requests without an answer more than four times those of the others a node is passed over: one that has begun to hang
	// must not gather thousands before the first of them is given up.
	lag = 32

	// probes come at first and at most this far apart.
	probeFirst = 50 * time.Millisecond
	probeMost  = time.Second

	// probeLimit bounds a probe, and what a node is asked when it is opened.
	probeLimit = time.Second

	// mostDebts bounds how many releases a node that is away is owed. What is beyond runs out by itself.
	mostDebts = 10_000
)

// A node is one of the backends, and what is known of its health. Its fields are guarded by mu; b does not change once it is set.
type node struct {
	red  *Backend
	name string
	open func(context.Context) (backend.Backend, error) // makes b, where it could not be opened yet; else nil

	fails   atomic.Int32
	sick    atomic.Bool
	waiting atomic.Int32 // requests that have no answer yet

	mu      sync.Mutex
	b       backend.Backend // nil until open has succeeded
	id      string          // its Identity, as last seen; empty unknown
	why     error           // why it is barred: it must not be counted; nil
	debts   []debt
	probing bool
	paying  bool
}

// A debt is a release that a node has not confirmed, and until when it matters.
type debt struct {
	claim backend.Claim
	until time.Time
}

// backend returns the node's backend, or why there is none to be asked.
func (n *node) backend() (backend.Backend, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.why != nil:
		return nil, n.why
	case n.b == nil:
		return nil, errPassedOver
	}
	return n.b, nil
}

// start makes a request that lasts as long as s says, and takes note of whether the node answers. done gets the answer, which may be before
// start returns.
func (n *node) start(s *spell, v backend.Verb, c backend.Claim, done func(backend.Grant, error)) {
	go func() { done(n.wait(s, v, c)) }()
}

// wait is start for who waits.
func (n *node) wait(s *spell, v backend.Verb, c backend.Claim) (g backend.Grant, err error) {
	err = n.ask(s, func(ctx context.Context, b backend.Backend) (err error) {
		g, err = v.Do(ctx, b, c)
		return err
	})
	return g, err
}

// ask sends one request, waits for it as long as s says, and takes note of whether the node answers.
func (n *node) ask(s *spell, send func(context.Context, backend.Backend) error) error {
	b, err := n.backend()
	if err != nil {
		return err
	}
	w := s.enter()
	defer s.leave(w)
	n.waiting.Add(1)
	defer n.waiting.Add(-1)
	err = send(w.ctx, b)
	return n.heard(s, err, w.ctx.Err() != nil)
}

// heard takes note of the node's answer, and returns it.
func (n *node) heard(s *spell, err error, over bool) error {
	if err != nil && backend.AnswerOf(err) == backend.Unknown &&
		(over || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		err = silentError{s.limit} // a client may be a moment before its ctx
	}
	n.note(err)
	return err
}

// note takes an answer, or its absence, for a sign of the node's health.
func (n *node) note(err error) {
	answered := backend.AnswerOf(err) != backend.Unknown && !errors.Is(err, backend.ErrUnavailable)
	if answered {
		if n.fails.Load() != 0 && n.fails.Swap(0) != 0 {
			n.look() // it may have been restarted
		}
		n.sick.Store(false)
		return
	}
	if n.fails.Add(1) >= sickAfter && n.sick.CompareAndSwap(false, true) {
		n.startProbe()
	}
}

// look asks the node in the background who it is, once.
func (n *node) look() {
	if n.red.begin() {
		go func() {
			defer n.red.tasks.Done()
			ctx, cancel := context.WithTimeout(n.red.ctx, probeLimit)
			defer cancel()
			_ = n.red.identify(ctx, n)
		}()
	}
}

func (n *node) startProbe() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.probing || !n.red.begin() {
		return
	}
	n.probing = true
	go n.probe()
}

// probe asks the node from time to time until it answers.
func (n *node) probe() {
	defer n.red.tasks.Done()
	wait := waiting.NewBackoff(probeFirst, probeMost)
	for n.sick.Load() {
		if !waiting.Pause(n.red.ctx, wait.Next()) {
			return
		}
		if err := n.revive(n.red.ctx); err == nil {
			break
		}
	}
	n.mu.Lock()
	n.probing = false
	n.mu.Unlock()
	if n.sick.Load() { // it fell sick again while this probe was on its way out
		n.startProbe()
	}
}

// revive opens the node if need be, and asks it something that changes nothing. A renewal never creates.
func (n *node) revive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	if err := n.ensure(ctx); err != nil {
		return err
	}
	if err := n.red.identify(ctx, n); err != nil {
		return err
	}
	b, err := n.backend()
	if err != nil {
		return err
	}
	err = b.Renew(ctx, backend.Claim{Key: "redlock probe", Owner: backend.NewOwner(), TTL: max(b.Capabilities().MinTTL, time.Second)})
	if backend.AnswerOf(err) == backend.Unknown || errors.Is(err, backend.ErrUnavailable) {
		return err
	}
	n.note(err)
	return nil
}

// ensure opens a node that could not be opened before. One that can do less than was promised for all of them is barred.
func (n *node) ensure(ctx context.Context) error {
	n.mu.Lock()
	opened := n.b != nil
	n.mu.Unlock()
	if opened {
		return nil
	}
	b, err := n.open(ctx)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.b = b
	if err := capsOf(b).Missing(n.red.caps.need()); err != nil {
		n.why = err
	}
	return n.why
}

// owe makes the node forget claim as soon as it can be reached, for as long as it may hold it.
func (n *node) owe(claim backend.Claim) {
	claim.NoneInFlight = false
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.debts) == mostDebts {
		n.debts = n.debts[1:]
	}
	n.debts = append(n.debts, debt{claim, time.Now().Add(2 * claim.TTL)})
	if n.paying || !n.red.begin() {
		return
	}
	n.paying = true
	go n.pay()
}

// pay releases what is owed, until nothing is.
func (n *node) pay() {
	defer n.red.tasks.Done()
	wait := waiting.NewBackoff(probeFirst, probeMost)
	for waiting.Pause(n.red.ctx, wait.Next()) {
		for {
			d, ok := n.firstDebt()
			if !ok {
				return
			}
			if time.Now().Before(d.until) {
				_, err := n.wait(newSpell(n.red.ctx, n.red.cfg.timeout(d.claim.TTL)), backend.Release, d.claim)
				if backend.AnswerOf(err) == backend.Unknown || errors.Is(err, backend.ErrUnavailable) {
					break
				}
				wait.Reset()
			}
			n.settle(d)
		}
	}
}

func (n *node) firstDebt() (debt, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.debts) == 0 {
		n.paying = false
		return debt{}, false
	}
	return n.debts[0], true
}

// settle strikes d, unless it was dropped to make room meanwhile.
func (n *node) settle(d debt) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.debts) > 0 && n.debts[0].claim.Owner == d.claim.Owner && n.debts[0].claim.Key == d.claim.Key {
		n.debts = n.debts[1:]
	}
}
