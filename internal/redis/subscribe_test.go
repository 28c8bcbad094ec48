package redis

import (
	"errors"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A Watch is among the watchers before it looks for its channel: a sweep in between, which sees
// none, would drop the channel that it found.
//
// covers: W1
func TestWatchEntersBeforeItLooks(t *testing.T) {
	s := newSubscription(&Store{})
	defer s.close()
	s.mu.Lock() // as a sweep does
	unlock := sync.OnceFunc(func() {
		s.closed = true
		s.mu.Unlock()
	})
	defer unlock()
	done := make(chan error, 1)
	go func() {
		_, err := s.watch(t.Context(), "channel", &s.Hub, "channel")
		done <- err
	}()
	storetest.Eventually(t, "the watcher to be seen by a sweep", func() error {
		if s.Hub.Watched("channel") {
			return nil
		}
		return errors.New("not yet")
	})
	unlock()
	if err := <-done; !errors.Is(err, backend.ErrClosed) {
		t.Error(err)
	}
	if s.Hub.Watched("channel") {
		t.Error("a watch that failed is still there")
	}
}

// What a release granted to whoever is next is only on the primary when that is told. With
// replicas=1 it is a reason to ask, and no grant.
//
// covers: R1, A6
func TestHandOverThatNoReplicaHas(t *testing.T) {
	for replicas := range 2 {
		s, err := New(&Config{Replicas: replicas}, "redis")
		if err != nil {
			t.Fatal(err)
		}
		sub := newSubscription(s)
		wakes := sub.Queue.Watch(t.Context(), "id holdfast:{k}")
		sub.deliver(Message{
			Channel: s.Layout.ClientChannel(),
			Payload: "17 1 1500 id holdfast:{k}",
		})
		sub.close()
		if w := <-wakes; w.Granted != (replicas == 0) {
			t.Errorf("a hand-over with replicas=%d is %+v", replicas, w)
		}
	}
}
