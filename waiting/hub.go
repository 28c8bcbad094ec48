package waiting

import (
	"context"
	"sync"
)

// A Hub lets one subscription serve many watchers. Whoever reads the subscription calls Wake,
// WakeAll and Deliver, which never block: each watcher has one slot, and a signal to a full slot is
// dropped because one already waits there. (rueidis#457 was a blocking send under a mutex,
// rueidis#602 a wake-up loop that spun.)
//
// The zero Hub is ready for use. All methods may be called concurrently.
type Hub[M any] struct {
	mu     sync.Mutex
	topics map[string]*watcher[M] // the last to come, of each
	closed bool
}

// A watcher is one of a list, as most topics have one: a set for each would be most of what a
// watcher costs.
type watcher[M any] struct {
	wake         chan M
	older, newer *watcher[M]
}

// Watch returns a channel that Wake(topic) signals until ctx is done. After Close the channel is
// closed at once.
func (h *Hub[M]) Watch(ctx context.Context, topic string) <-chan M {
	wake, leave := h.Enter(topic)
	context.AfterFunc(ctx, leave)
	return wake
}

// Enter is Watch until leave is called, which may be more than once.
func (h *Hub[M]) Enter(topic string) (wake <-chan M, leave func()) {
	w := &watcher[M]{wake: make(chan M, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		close(w.wake)
		return w.wake, func() {}
	}
	if h.topics == nil {
		h.topics = map[string]*watcher[M]{}
	}
	if w.older = h.topics[topic]; w.older != nil {
		w.older.newer = w
	}
	h.topics[topic] = w
	return w.wake, func() { h.remove(topic, w) }
}

func (h *Hub[M]) remove(topic string, w *watcher[M]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case w.newer != nil:
		w.newer.older = w.older
	case h.topics[topic] != w: // it has left, or the Hub is closed
		return
	case w.older == nil:
		delete(h.topics, topic)
	default:
		h.topics[topic] = w.older
	}
	if w.older != nil {
		w.older.newer = w.newer
	}
	w.older, w.newer = nil, nil
}

// Watched reports whether topic has a watcher.
func (h *Hub[M]) Watched(topic string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.topics[topic] != nil
}

// Empty reports whether no topic has a watcher.
func (h *Hub[M]) Empty() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics) == 0
}

// Wake signals every watcher of topic.
func (h *Hub[M]) Wake(topic string, m M) {
	h.mu.Lock()
	defer h.mu.Unlock()
	signal(h.topics[topic], m)
}

// WakeAll signals every watcher of every topic: after a reconnect, any of them may have missed its
// signal.
func (h *Hub[M]) WakeAll(m M) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, last := range h.topics {
		signal(last, m)
	}
}

// Deliver signals every watcher of topic as Wake does, but m says something: it takes the place of
// an older signal in a full slot. Wake never takes the place of what was delivered, so it is there
// until it is read.
func (h *Hub[M]) Deliver(topic string, m M) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := h.topics[topic]; w != nil; w = w.older {
		select {
		case <-w.wake:
		default:
		}
		// never blocks: only the Hub sends, under its lock, and the slot has just been empty
		w.wake <- m
	}
}

func signal[M any](last *watcher[M], m M) {
	for w := last; w != nil; w = w.older {
		select {
		case w.wake <- m:
		// A signal already waits there; the watcher has yet to look, and will see the present
		// state. safeguard: full-slot
		default:
		}
	}
}

// Close closes every watcher's channel, which tells it to poll, and that of every later Watch.
func (h *Hub[M]) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, last := range h.topics {
		for w := last; w != nil; w = w.older {
			close(w.wake)
		}
	}
	h.topics = nil
}
