package locker

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// lookAfter is how long a lease is here before it is watched: a short one costs nothing.
const lookAfter = 10 * time.Millisecond

// look is the function of the timer that newTenure sets where the backend says that it signals the loss of a hold. It watches
// the lease until its end. A signal is a hint, and never ends a hold: the store is asked, as by Check, and its answer does.
func (t *tenure) look() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return
	}
	t.unwatch = cancel
	t.c.life.follow() // whoever has the lease is counted
	t.mu.Unlock()
	defer t.c.life.leave()

	claim := t.claim
	claim.Queue = false // it stands in no line
	retry := waiting.NewBackoff(retryFirst, max(retryMost, claim.TTL/12))
	for {
		wakes, err := t.c.b.Watch(ctx, claim)
		if err == nil {
			retry.Reset()
			t.heed(ctx, wakes, retry)
		}
		if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, backend.ErrClosed) || !waiting.Pause(ctx, retry.Next()) {
			return // renewals tell
		}
	}
}

// heed asks the store at every signal, until wakes is closed or ctx is done. A question without an answer is repeated.
func (t *tenure) heed(ctx context.Context, wakes <-chan backend.Wake, retry *waiting.Backoff) {
	for {
		select {
		case _, open := <-wakes:
			if !open {
				return
			}
		case <-ctx.Done():
			return
		}
		for !t.verified(ctx) {
			if !waiting.Pause(ctx, retry.Next()) {
				return
			}
		}
		retry.Reset()
	}
}

// verified asks the store for whoever has the lease, and reports whether it answered that all is well. While the lease is
// handed on there is nobody to ask for.
func (t *tenure) verified(ctx context.Context) bool {
	t.mu.Lock()
	k := t.keeper
	t.mu.Unlock()
	return k != nil && k.check(ctx) == nil
}
