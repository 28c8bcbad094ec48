package backendtest

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/locker"
)

// turns records when a process took its places in the store's queue, and when it was granted the
// lock: an Observer.
type turns struct{ rec *history.Recorder }

// A place is one claim that may be made to the store.
type place struct {
	asked, answered time.Duration // the first attempt; when there were more, the last that was refused
	again           bool          // there were: it may have lost its place, as a stopped process does
}

type placeKey struct{}

// Begin follows claims, a worker's own and those of its cohort, and their attempts.
func (r *turns) Begin(ctx context.Context, op string, _ locker.Hold) (context.Context, func(locker.Hold, error)) {
	end := func(locker.Hold, error) {}
	switch op {
	case locker.OpLock, locker.OpLease:
		ctx = context.WithValue(ctx, placeKey{}, &place{})
	case locker.OpAttempt:
		p, ok := ctx.Value(placeKey{}).(*place)
		if !ok {
			break
		}
		asked, again := history.Now(), p.asked != 0
		end = func(_ locker.Hold, err error) {
			if !again || err != nil {
				p.asked, p.answered, p.again = asked, history.Now(), again
			}
		}
	}
	return ctx, end
}

// Event records a grant. If it is not known well enough when the claim took its place, the turn is
// a late one, asked for when it certainly had.
func (r *turns) Event(ctx context.Context, e locker.Event) {
	p, ok := ctx.Value(placeKey{}).(*place)
	switch {
	case !ok || e.Kind != locker.EventGrant || p.asked == 0:
	case !p.again && p.answered-p.asked <= fairSlack:
		r.note(fairLine, p.asked, history.Now())
	default:
		r.note(fairLate, p.answered, history.Now())
	}
}

// note records a turn. One that cannot be written is missed by who reads.
func (r *turns) note(line string, asked, granted time.Duration) {
	_, _ = r.rec.Begin(history.Event{Worker: "line", Key: line, Asked: asked, Start: granted}, granted+1)
}
