package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// settling is how long the first wake-up of a release waits for those of the other nodes, so that a waiter asks once, when a majority
// is free, and not once per node.
const settling = 5 * time.Millisecond

// Watch is subscribed on a majority of the nodes before it returns, so it hears of every release that a majority has confirmed. Its wake-ups are
// hints, and are late by some milliseconds if not all nodes signal.
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
	c.Queue = false
	w := &watch{red: r, signals: make(chan signal, 2*len(r.nodes))}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(r.ctx, cancel)
	if err := w.subscribe(ctx, c); err != nil {
		cancel()
		stop()
		return nil, err
	}
	out := make(chan backend.Wake, 1)
	if !r.begin() {
		cancel()
		stop()
		return nil, backend.ErrClosed
	}
	go func() {
		defer r.tasks.Done()
		defer cancel()
		defer stop()
		w.merge(ctx, out)
	}()
	return out, nil
}

// A watch is one subscription on all nodes.
type watch struct {
	red     *Backend
	signals chan signal
	listens int // nodes that are subscribed
	waiting int // nodes that have not said
}

// A signal is what one node's part of a watch has to say.
type signal struct {
	node int
	kind signalKind
	err  error
}

type signalKind uint8

const (
	subscribed signalKind = iota
	failed
	woken
	over
)

// subscribe returns when a majority of the nodes is subscribed, or cannot be.
func (w *watch) subscribe(ctx context.Context, c backend.Claim) error {
	votes := w.red.poll()
	for i, ask := range w.red.asked() {
		if !ask {
			votes.count(i, errPassedOver)
			continue
		}
		if !w.red.begin() {
			return backend.ErrClosed
		}
		w.waiting++
		go func() {
			defer w.red.tasks.Done()
			w.listen(ctx, i, c)
		}()
	}
	for w.listens < w.red.quorum {
		if w.listens+w.waiting < w.red.quorum {
			return votes.inconclusive()
		}
		select {
		case s := <-w.signals:
			w.hear(s)
			if s.kind == failed {
				votes.count(s.node, s.err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (w *watch) hear(s signal) {
	switch s.kind {
	case subscribed:
		w.listens++
		w.waiting--
	case failed:
		w.waiting--
	case over:
		w.listens--
	}
}

// listen is one node's part. The subscription lasts for as long as ctx; only the wait for it is bounded.
func (w *watch) listen(ctx context.Context, i int, c backend.Claim) {
	say := func(s signal) {
		select {
		case w.signals <- s:
		case <-ctx.Done():
		}
	}
	b, err := w.red.nodes[i].backend()
	if err != nil {
		say(signal{i, failed, err})
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := w.red.cfg.timeout(max(c.TTL, time.Second))
	slow := time.AfterFunc(limit, cancel)
	wakes, err := b.Watch(ctx, c)
	if !slow.Stop() && err == nil {
		err = silentError{limit}
	}
	if err != nil {
		select { // ctx may be over by our own hand
		case w.signals <- signal{i, failed, err}:
		case <-w.red.ctx.Done():
		default:
		}
		return
	}
	say(signal{node: i, kind: subscribed})
	for {
		select {
		case _, open := <-wakes:
			if !open {
				say(signal{node: i, kind: over})
				return
			}
			say(signal{node: i, kind: woken})
		case <-ctx.Done():
			return
		}
	}
}

// merge makes one wake-up of those that a majority gives, or of the first after some time. When less than a majority is subscribed, a
// release may go unheard, and the channel is closed: poll.
func (w *watch) merge(ctx context.Context, out chan<- backend.Wake) {
	heard := make(map[int]bool, len(w.red.nodes))
	patience := time.NewTimer(settling)
	defer patience.Stop()
	wake := func() {
		clear(heard)
		select {
		case out <- backend.Wake{}:
		default: // one is waiting there
		}
	}
	for {
		select {
		case s := <-w.signals:
			if w.hear(s); w.listens < w.red.quorum {
				close(out)
				return
			}
			if s.kind != woken {
				continue
			}
			if heard[s.node] = true; len(heard) == 1 {
				patience.Reset(settling)
			}
			if len(heard) >= w.red.quorum {
				wake()
			}
		case <-patience.C:
			if len(heard) > 0 {
				wake()
			}
		case <-ctx.Done():
			if w.red.ctx.Err() != nil {
				close(out)
			}
			return
		}
	}
}
