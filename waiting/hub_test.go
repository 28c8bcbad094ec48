package waiting_test

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/waiting"
)

// covers: W16
func TestHubDeliver(t *testing.T) {
	var h waiting.Hub[int]
	wake := h.Watch(t.Context(), "a")
	other := h.Watch(t.Context(), "b")

	h.Wake("a", 1)
	h.Wake("a", 2) // dropped: one waits there
	if got := <-wake; got != 1 {
		t.Errorf("woken with %d, want the first signal", got)
	}
	h.Wake("a", 1)
	h.Deliver("a", 2)
	h.Deliver("a", 3)
	h.Wake("a", 4)
	h.WakeAll(5)
	if got := <-wake; got != 3 {
		t.Errorf("woken with %d, want what was delivered last", got)
	}
	if got := <-other; got != 5 {
		t.Errorf("a watcher of another topic was woken with %d, want 5", got)
	}
	h.Deliver("nobody", 1)
}

// TestHubDeliverToReaders: whatever a watcher reads meanwhile, Deliver does not block, and its last
// signal arrives.
func TestHubDeliverToReaders(t *testing.T) {
	var h waiting.Hub[int]
	const rounds = 1000
	var watchers sync.WaitGroup
	for range 4 {
		wake := h.Watch(t.Context(), "a")
		watchers.Go(func() {
			for got := range wake {
				if got == rounds {
					return
				}
			}
			t.Error("closed")
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	h.Watch(ctx, "a") // does not read
	for i := range rounds {
		go h.Wake("a", 0)
		h.Deliver("a", i+1)
	}
	watchers.Wait()
	cancel()
}
