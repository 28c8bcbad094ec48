package waiting

import (
	"context"
	"sync"
)

// A Hub lets one subscription serve many watchers. Whoever reads the subscription calls Wake, WakeAll and Deliver, which
// never block: each watcher has one slot, and a signal to a full slot is dropped because one already waits there.
// (rueidis#457 was a blocking send under a mutex, rueidis#602 a wake-up loop that spun.)
//
// The zero Hub is ready for use. All methods may be called concurrently.
type Hub[M any] struct {
	mu     sync.Mutex
	topics map[string]map[*watcher[M]]struct{}
	closed bool
}

type watcher[M any] struct{ wake chan M }

// Watch returns a channel that Wake(topic) signals until ctx is done. After Close the channel is closed at once.
func (h *Hub[M]) Watch(ctx context.Context, topic string) <-chan M {
	w := &watcher[M]{wake: make(chan M, 1)}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		close(w.wake)
		return w.wake
	}
	if h.topics == nil {
		h.topics = map[string]map[*watcher[M]]struct{}{}
	}
	watchers := h.topics[topic]
	if watchers == nil {
		watchers = map[*watcher[M]]struct{}{}
		h.topics[topic] = watchers
	}
	watchers[w] = struct{}{}
	h.mu.Unlock()

	context.AfterFunc(ctx, func() { h.remove(topic, w) })
	return w.wake
}

func (h *Hub[M]) remove(topic string, w *watcher[M]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	watchers := h.topics[topic]
	delete(watchers, w)
	if len(watchers) == 0 {
		delete(h.topics, topic)
	}
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

// WakeAll signals every watcher of every topic: after a reconnect, any of them may have missed its signal.
func (h *Hub[M]) WakeAll(m M) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, watchers := range h.topics {
		signal(watchers, m)
	}
}

// Deliver signals every watcher of topic as Wake does, but m says something: it takes the place of an older signal in a full
// slot. Wake never takes the place of what was delivered, so it is there until it is read.
func (h *Hub[M]) Deliver(topic string, m M) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.topics[topic] {
		select {
		case <-w.wake:
		default:
		}
		w.wake <- m // never blocks: only the Hub sends, under its lock, and the slot has just been empty
	}
}

func signal[M any](watchers map[*watcher[M]]struct{}, m M) {
	for w := range watchers {
		select {
		case w.wake <- m:
		default: // a signal already waits there; the watcher has yet to look, and will see the present state
		}
	}
}

// Close closes every watcher's channel, which tells it to poll, and that of every later Watch.
func (h *Hub[M]) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, watchers := range h.topics {
		for w := range watchers {
			close(w.wake)
		}
	}
	h.topics = nil
}
