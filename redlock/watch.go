package redlock

import (
	"context"
	"errors"
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
	if !r.caps.Watch {
		return nil, errors.ErrUnsupported
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{
		votes: r.newVotes(), pending: len(r.nodes), ready: make(chan struct{}), out: make(chan backend.Wake, 1),
		woken: map[int]bool{}, cancel: cancel,
	}
	w.delay = time.AfterFunc(mergeDelay, w.wake)
	stop := context.AfterFunc(r.ctx, w.close)
	c.Queue = false
	var nodes sync.WaitGroup
	for i, healthy := range r.healthy() {
		if healthy {
			nodes.Go(func() { w.listen(ctx, i, c, r.cfg.timeout(max(c.TTL, time.Second))) })
		} else {
			w.subscribed(i, r.nodes[i].skipped())
		}
	}
	r.tasks.Add(1) // Close still waits for this call
	go func() {
		defer r.tasks.Done()
		nodes.Wait()
		stop()
		cancel()
		w.delay.Stop()
	}()
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.listening >= r.quorum:
		return w.out, nil
	case r.ctx.Err() != nil:
		return nil, backend.ErrClosed
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	cancel()
	return nil, w.votes.inconclusive()
}

// A watch is one subscription on all nodes.
type watch struct {
	cancel func() // ends the nodes' watches
	out    chan backend.Wake
	ready  chan struct{} // closed when a majority is subscribed, or cannot be
	delay  *time.Timer   // until the wake-ups that were heard are one

	mu        sync.Mutex
	votes     votes // of those that could not be subscribed
	pending   int   // nodes that are not subscribed yet
	listening int   // nodes that are
	woken     map[int]bool
	closed    bool
}

// listen is one node's part. The subscription lasts for as long as ctx; only the wait for it is
// bounded.
func (w *watch) listen(ctx context.Context, i int, c backend.Claim, timeout time.Duration) {
	b, err := w.votes.nodes[i].backend()
	if err != nil {
		w.subscribed(i, err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slow := time.AfterFunc(timeout, cancel)
	wakes, err := b.Watch(ctx, c)
	if !slow.Stop() {
		err = silentError{timeout}
	}
	if w.subscribed(i, err); err != nil {
		return
	}
	for {
		select {
		case _, open := <-wakes:
			if !open {
				w.unsubscribed()
				return
			}
			w.heard(i)
		case <-ctx.Done():
			return
		}
	}
}

// subscribed records that node i is subscribed, or why not.
func (w *watch) subscribed(i int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending--
	if err == nil {
		w.listening++
	} else {
		w.votes.count(i, err)
	}
	select {
	case <-w.ready:
	default:
		if w.listening >= w.votes.quorum || w.listening+w.pending < w.votes.quorum {
			close(w.ready)
		}
	}
}

// unsubscribed records that a node hears no more.
func (w *watch) unsubscribed() {
	w.mu.Lock()
	w.listening--
	few := w.listening+w.pending < w.votes.quorum
	w.mu.Unlock()
	if few {
		w.close()
	}
}

// heard makes one wake-up of those that a majority gives, or of the first after mergeDelay.
func (w *watch) heard(i int) {
	w.mu.Lock()
	w.woken[i] = true
	n := len(w.woken)
	w.mu.Unlock()
	switch {
	case n >= w.votes.quorum:
		w.wake()
	case n == 1:
		w.delay.Reset(mergeDelay)
	}
}

func (w *watch) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.woken) == 0 || w.closed {
		return
	}
	clear(w.woken)
	select {
	case w.out <- backend.Wake{}:
	default: // one is waiting there
	}
}

// close ends the watch, and tells the caller to poll.
func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		close(w.out)
	}
	w.cancel()
}
