package locker

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// An agent that has brought a lease asks for the next one together with the release of that lease, or a while later if the
// hold lasts: in one request where the backend is a [backend.Relayer], and else right behind it. Asked at once, the question would stand
// between a short hold and its release, and the grant come by a message of its own, although most of the time nobody else wants the key.
//
// Nobody's place in the store's line is different for it by more than standBack, and any order is right: a claim that comes
// before the release is put in line, and the release hands the key over to whoever is first.

// standBack is how long an agent waits for a release at most.
const standBack = time.Millisecond

// A ride is a question that waits for a release to go with.
type ride struct {
	claim backend.Claim
	taken bool // by the release; guarded by the tenure's mu

	// The answer. Whoever has taken the ride gives it, and then closes done.
	done  chan struct{}
	alone bool    // the release went without it after all
	sent  instant // before the request
	grant backend.Grant
	err   error
}

// offer has r go with the release of the lease. over is closed when that is given back, with r or without, or lost.
func (t *tenure) offer(r *ride) (over <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = make(chan struct{})
	}
	if t.over {
		close(t.ended)
		over, t.ended = t.ended, nil
		return over
	}
	t.ride = r
	return t.ended
}

// leave takes r back, and reports whether it could: else there will be an answer.
func (t *tenure) leave(r *ride) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ride == r {
		t.ride = nil
	}
	return !r.taken
}

// board takes who waits to go with the release. With a release that has to leave a tombstone nobody goes. The caller has mu.
func (t *tenure) board() *ride {
	r := t.ride
	t.ride = nil
	if r == nil || !t.claim.Settled || !t.c.relays.Load() {
		return nil
	}
	r.taken = true
	return r
}

// standBack waits until the lease that the agent brought before is given back, or for a while. If the question has gone with the release,
// that ride is returned, with the answer; nil says that it is to be asked by itself.
func (a *acquisition) standBack(ctx context.Context) *ride {
	if a.before == nil || !a.claim.Queue { // without a line, who asks first after a release wins, and so might we for ever
		return nil
	}
	before, r := a.before, &ride{claim: a.claim, done: make(chan struct{})}
	a.before = nil
	long := time.NewTimer(standBack)
	defer long.Stop()
	select {
	case <-before.offer(r):
	case <-long.C:
	case <-ctx.Done():
	}
	if before.leave(r) {
		return nil
	}
	select {
	case <-r.done:
		if r.alone {
			return nil
		}
		a.asked = true
		return r
	case <-ctx.Done():
		a.asked = true
		return &ride{sent: a.core.now(), err: ctx.Err()}
	}
}

// relay is the release of claim with r on board, which is answered in any case, a panic of the backend included.
func (c *core) relay(ctx context.Context, claim backend.Claim, r *ride) (released error) {
	defer close(r.done)
	r.sent, r.err = c.now(), errNoAnswer
	released, r.grant, r.err = backend.RelayOf(ctx, c.b, claim, r.claim)
	if errors.Is(released, errors.ErrUnsupported) {
		c.relays.Store(false)
		r.alone = true
		return c.b.Release(ctx, claim)
	}
	return released
}

var errNoAnswer = errors.New("the backend gave no answer") // which is unknown
