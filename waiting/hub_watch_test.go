package waiting_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/waiting"
)

// covers: W13, W4
func TestHubWakesTheTopic(t *testing.T) {
	var h waiting.Hub[int]
	a1, a2, b := h.Watch(t.Context(), "a"), h.Watch(t.Context(), "a"), h.Watch(t.Context(), "b")
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
	if !h.Watched("a") || h.Watched("nobody") || h.Empty() {
		t.Error("a topic is watched that is not, or the other way round")
	}
}

// covers: W16
func TestHubNeverBlocks(t *testing.T) {
	var h waiting.Hub[int]
	slow := h.Watch(t.Context(), "a")
	for i := range 1000 {
		h.Wake("a", i)
		h.WakeAll(i)
	}
	if got := <-slow; got != 0 || len(slow) != 0 {
		t.Errorf("a slow watcher finds %d and %d more; want one signal, the first", got, len(slow))
	}
}

// One that has not read its signal keeps those beside it from none.
//
// covers: W16
func TestHubWakesBesideAFullSlot(t *testing.T) {
	var h waiting.Hub[int]
	var wakes []<-chan int
	for range 3 {
		wakes = append(wakes, h.Watch(t.Context(), "a"))
	}
	for full := range wakes {
		h.Wake("a", 1)
		for i, wake := range wakes {
			if i != full {
				<-wake
			}
		}
		h.Wake("a", 2)
		for i, wake := range wakes {
			if i != full && len(wake) == 0 {
				t.Errorf("watcher %d was not signalled, as the slot of watcher %d was full", i,
					full)
			}
		}
		for _, wake := range wakes {
			for len(wake) > 0 {
				<-wake
			}
		}
	}
}

// covers: W13, G1
func TestHubForgetsWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h waiting.Hub[int]
		ctx1, cancel1 := context.WithCancel(t.Context())
		ctx2, cancel2 := context.WithCancel(t.Context())
		one, two := h.Watch(ctx1, "a"), h.Watch(ctx2, "a")
		cancel1()
		synctest.Wait()
		h.Wake("a", 1)
		if len(one) != 0 || len(two) != 1 {
			t.Errorf("%d signals for the watcher that left, %d for the other; want 0 and 1",
				len(one), len(two))
		}
		if !h.Watched("a") {
			t.Error("a topic with a watcher was forgotten")
		}
		cancel2()
		synctest.Wait()
		if h.Watched("a") || !h.Empty() {
			t.Error("a topic that nobody watches is left")
		}
		h.Watch(ctx2, "a") // with a ctx that is done
		synctest.Wait()
		if !h.Empty() {
			t.Error("a watcher whose ctx was done is left")
		}
	})
}

// covers: G1
func TestHubClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h waiting.Hub[int]
		ctx, cancel := context.WithCancel(t.Context())
		wake := h.Watch(ctx, "a")
		h.Close()
		h.Close()
		if _, open := <-wake; open {
			t.Error("Close left a watcher's channel open")
		}
		if _, open := <-h.Watch(ctx, "a"); open {
			t.Error("Watch after Close gives an open channel")
		}
		h.Wake("a", 1)
		h.WakeAll(1)
		h.Deliver("a", 1)
		cancel()
		synctest.Wait()
		if !h.Empty() {
			t.Error("a topic is left after Close")
		}
	})
}

// TestHubUnderLoad watches, wakes and leaves all at once. In the end nobody is left.
//
// covers: W13, G5
func TestHubUnderLoad(t *testing.T) {
	var h waiting.Hub[int]
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			topic := fmt.Sprint(w % 2)
			for range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				wake := h.Watch(ctx, topic)
				h.Wake(topic, w)
				<-wake // ours, or another's
				h.WakeAll(w)
				cancel()
			}
		})
	}
	workers.Wait()
	for !h.Empty() { // the last AfterFuncs; the test's time limit ends this if somebody is left
		h.WakeAll(0)
	}
}
