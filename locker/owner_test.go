package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// Two of one owner wait, and another between them. Who holds first may wait for the second, with a
// WaitGroup for instance, so the second enters past the queue while the first holds.
//
// covers: W6, G3
func TestOwnerEntersWhileItHolds(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		release := holder(t, b)
		owner := locker.Reentrant(backend.NewOwner())
		entered := make(chan *locker.Guard[struct{}], 2)
		enter := func() {
			g, err := l.Lock(ctx, "k", owner)
			if err != nil {
				t.Error(err)
			}
			entered <- g
		}
		go enter()
		synctest.Wait()
		between := inBackground(ctx, l)
		go enter()
		synctest.Wait()
		release()
		first, second := <-entered, <-entered
		select {
		case err := <-between:
			t.Error("the one between held beside them:", err)
		default:
		}
		for _, g := range []*locker.Guard[struct{}]{first, second} {
			if g == nil {
				t.Fatal("it waits for its own owner")
			}
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
		}
		if err := <-between; err != nil {
			t.Error(err)
		}
	})
}
