package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// mergeDelay is how long the first wake-up of a release waits for those of the other nodes, so that
// a waiter tries once, when a majority is free, and not once per node.
const mergeDelay = 5 * time.Millisecond

// Watch is subscribed on a majority of the nodes before it returns, so it hears of every release
// that a majority has confirmed. Its wake-ups are hints, and some milliseconds late if not all
// nodes signal. When less than a majority is left, a release may go unheard, and the channel is
// closed: poll.
func (r *Backend) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	if err := backend.ValidateKey(c.Key); err != nil {
		return nil, err
	}
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	defer r.tasks.Done()
	if err := r.caps.Missing(backend.Capabilities{Watch: true}); err != nil {
		return nil, err
	}
	watching, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(r.ctx, cancel)
	w := &watch{
		votes: r.newVotes(), signals: make(chan signal), ready: make(chan error, 1),
		out: make(chan backend.Wake, 1),
	}
	c.Queue = false
	var nodes sync.WaitGroup
	for i, healthy := range r.healthy() {
		if healthy {
			nodes.Go(func() { w.listen(watching, i, c, r.cfg.timeout(max(c.TTL, time.Second))) })
		} else {
			w.count(i, r.nodes[i].skipped()) // safeguard: away-unsubscribed
		}
	}
	r.tasks.Add(1) // Close still waits for this call
	go func() {
		defer r.tasks.Done()
		if w.merge(watching); ctx.Err() == nil {
			close(w.out)
		}
		stop()
		cancel()
		nodes.Wait()
	}()
	err := <-w.ready
	switch {
	case err == nil:
		return w.out, nil
	case r.ctx.Err() != nil:
		return nil, backend.ErrClosed
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, err
}

// A watch is one subscription on all nodes.
type watch struct {
	votes   // yes are those that are subscribed; of merge alone, once the nodes are asked
	signals chan signal
	ready   chan error // the first answer: nil when a majority is subscribed
	out     chan backend.Wake
}

// A signal is what one node's watch tells: a wake-up, or that it is subscribed (no err) or not.
type signal struct {
	node int
	wake bool
	err  error
}

// listen is one node's part. The subscription lasts for as long as watching; only the wait for it
// is bounded.
func (w *watch) listen(watching context.Context, i int, c backend.Claim, timeout time.Duration) {
	send := func(h signal) {
		select {
		case w.signals <- h:
		case <-watching.Done():
		}
	}
	b, err := w.nodes[i].backend()
	if err != nil {
		send(signal{node: i, err: err})
		return
	}
	ctx, cancel := context.WithCancel(watching)
	defer cancel()
	slow := time.AfterFunc(timeout, cancel)
	wakes, err := b.Watch(ctx, c)
	if !slow.Stop() {
		err = timeoutError{timeout} // safeguard: node-subscribed-late
	}
	send(signal{node: i, err: err})
	for err == nil {
		select {
		case _, open := <-wakes:
			if !open {
				err = errUnsubscribed // safeguard: node-unsubscribed
			}
			send(signal{node: i, wake: open, err: err})
		case <-watching.Done():
			return
		}
	}
}

// merge makes one wake-up of those that a majority gives, or of the first after mergeDelay, for as
// long as a majority is subscribed or may come to be.
func (w *watch) merge(watching context.Context) {
	ready := false
	woken := map[int]bool{}
	var delay <-chan time.Time
	for w.yes+w.pending() >= w.quorum {
		if !ready && w.yes >= w.quorum {
			ready = true
			w.ready <- nil
		}
		wake := false
		select {
		case h := <-w.signals:
			if !h.wake {
				w.count(h.node, h.err)
				continue
			}
			woken[h.node] = true
			if wake = len(woken) >= w.quorum; delay == nil {
				delay = time.After(mergeDelay)
			}
		case <-delay:
			wake = true // safeguard: minority-wakes
		case <-watching.Done():
			if !ready {
				w.ready <- watching.Err() // safeguard: watch-left
			}
			return
		}
		if wake {
			clear(woken)
			delay = nil
			select {
			case w.out <- backend.Wake{}:
			default: // one is waiting there
			}
		}
	}
	if !ready {
		w.ready <- w.inconclusive()
	}
}
