package locker

import (
	"context"
	"time"
)

// An agent that has brought a lease asks for the next one right behind the release of that lease, or a while later if the
// hold lasts. Both are on their way together then. Asked at once, the question would stand between a short hold and its
// release, and the grant come by a message of its own, although most of the time nobody else wants the key.
//
// Nobody's place in the store's line is different for it by more than standBack, and any order is right: a claim that comes
// before the release is put in line, and the release hands the key over to whoever is first.

// standBack is how long an agent waits for a release at most.
const standBack = time.Millisecond

// untilOver returns a channel that is closed when the lease is over, or about to be given back.
func (t *tenure) untilOver() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	ended := make(chan struct{})
	if t.over {
		close(ended)
	} else {
		t.ended = ended
	}
	return ended
}

// standBack waits until the lease that the agent brought before is about to be given back, or for a while.
func (a *acquisition) standBack(ctx context.Context) {
	if a.before == nil || !a.claim.Queue { // without a line, who asks first after a release wins, and so might we for ever
		return
	}
	long := time.NewTimer(standBack)
	defer long.Stop()
	select {
	case <-a.before.untilOver():
	case <-long.C:
	case <-ctx.Done():
	}
	a.before = nil
}
