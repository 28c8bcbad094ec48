package waiting_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/waiting"
)

// covers: W13, W4
func TestHubWakesTheTopic(t *testing.T) {
	var h waiting.Hub[int]
	a1, first := h.Watch(t.Context(), "a", nil)
	a2, second := h.Watch(t.Context(), "a", nil)
	b, other := h.Watch(t.Context(), "b", nil)
	if !first || second || !other {
		t.Errorf("first watcher: %v, %v, %v; want true, false, true", first, second, other)
	}
	h.Wake("a", 1)
	h.Wake("nobody", 1)
	if <-a1 != 1 || <-a2 != 1 {
		t.Error("a watcher was not signalled")
	}
	if len(b) != 0 {
		t.Error("a watcher of another topic was signalled")
	}
	h.WakeAll(2)
	if <-a1 != 2 || <-a2 != 2 || <-b != 2 {
		t.Error("WakeAll left somebody out")
	}
	topics := h.Topics()
	slices.Sort(topics)
	if !slices.Equal(topics, []string{"a", "b"}) || !h.Watched("a") || h.Watched("nobody") {
		t.Errorf("Topics = %v", topics)
	}
}

// covers: W16
func TestHubNeverBlocks(t *testing.T) {
	var h waiting.Hub[int]
	slow, _ := h.Watch(t.Context(), "a", nil)
	for i := range 1000 {
		h.Wake("a", i)
		h.WakeAll(i)
	}
	if got := <-slow; got != 0 || len(slow) != 0 {
		t.Errorf("a slow watcher finds %d and %d more; want one signal, the first", got, len(slow))
	}
}

// covers: W13, G1
func TestHubVacant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h waiting.Hub[int]
		var vacant []string
		left := func(topic string) { // not under the Hub's lock: it may ask the Hub
			if h.Watched(topic) {
				t.Errorf("%s is vacant and watched", topic)
			}
			vacant = append(vacant, topic)
		}
		ctx1, cancel1 := context.WithCancel(t.Context())
		ctx2, cancel2 := context.WithCancel(t.Context())
		one, _ := h.Watch(ctx1, "a", left)
		two, _ := h.Watch(ctx2, "a", left)
		cancel1()
		synctest.Wait()
		h.Wake("a", 1)
		if len(one) != 0 || len(two) != 1 {
			t.Errorf("%d signals for the watcher that left, %d for the other; want 0 and 1", len(one), len(two))
		}
		if vacant != nil {
			t.Error("a topic with a watcher was called vacant")
		}
		cancel2()
		synctest.Wait()
		if !slices.Equal(vacant, []string{"a"}) || len(h.Topics()) != 0 {
			t.Errorf("vacant: %v, topics left: %v", vacant, h.Topics())
		}
		if _, first := h.Watch(t.Context(), "a", nil); !first {
			t.Error("the first watcher after all had left is not told so")
		}
	})
}

func TestHubWatchWithDoneContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h waiting.Hub[int]
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		calls := 0
		h.Watch(ctx, "a", func(string) { calls++ })
		synctest.Wait()
		if calls != 1 || h.Watched("a") {
			t.Errorf("vacant was called %d times, watched: %v", calls, h.Watched("a"))
		}
	})
}

// covers: G1
func TestHubClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h waiting.Hub[int]
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		wake, _ := h.Watch(ctx, "a", func(string) { calls++ })
		h.Close()
		h.Close()
		if _, open := <-wake; open {
			t.Error("Close left a watcher's channel open")
		}
		late, first := h.Watch(ctx, "a", nil)
		if _, open := <-late; open || first {
			t.Error("Watch after Close gives an open channel")
		}
		h.Wake("a", 1)
		h.WakeAll(1)
		h.Deliver("a", 1)
		cancel()
		synctest.Wait()
		if calls != 0 {
			t.Error("vacant was called for a watch that Close had ended")
		}
	})
}

// TestHubUnderLoad watches, wakes and leaves all at once. Whoever watches, and is alone in doing so, is told to subscribe;
// each time that everybody has left, somebody is told.
//
// covers: W13, G5
func TestHubUnderLoad(t *testing.T) {
	var h waiting.Hub[int]
	var firsts, vacants atomic.Int64
	var workers, ends sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			topic := fmt.Sprint(w % 2)
			for range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				ends.Add(1)
				context.AfterFunc(ctx, ends.Done)
				wake, first := h.Watch(ctx, topic, func(string) { vacants.Add(1) })
				if first {
					firsts.Add(1)
				}
				h.Wake(topic, w)
				<-wake // ours, or another's
				h.WakeAll(w)
				cancel()
			}
		})
	}
	workers.Wait()
	ends.Wait()
	for len(h.Topics()) > 0 { // the last AfterFuncs
		h.WakeAll(0)
	}
	if f, v := firsts.Load(), vacants.Load(); f < v || f-v > 2 {
		t.Errorf("%d topics began, %d ended", f, v)
	}
}
