package backendtest

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/locker"
)

// turns records when a process took its places in the store's queue, and when it was granted the
// lock: an Observer.
type turns struct{ team *team }

// A place is one claim that may be made to the store.
type place struct {
	asked, answered time.Duration // the first attempt
	kept            time.Duration // the last one that was refused was answered
	lost            bool          // it may have lost its place meanwhile, as a stopped process does
}

type placeKey struct{}

// placeKept is for how long a place lasts at least that nobody refreshes.
const placeKept = 500 * time.Millisecond

// Begin follows claims, a worker's own and those of its cohort, and their attempts. The first claim
// of a cohort is that of the first who came, whose attempt was refused.
func (r *turns) Begin(ctx context.Context, op string,
	_ locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	end := func(locker.Hold, error) {}
	p, _ := ctx.Value(placeKey{}).(*place)
	switch {
	case op == locker.OpLock, op == locker.OpLease && p == nil:
		ctx = context.WithValue(ctx, placeKey{}, &place{})
	case op == locker.OpLease:
		own := *p
		ctx = context.WithValue(ctx, placeKey{}, &own)
	case op == locker.OpAttempt && p != nil:
		asked := history.Now()
		end = func(_ locker.Hold, err error) { p.attempted(asked, history.Now(), err != nil) }
	}
	return ctx, end
}

// attempted takes note of an attempt.
func (p *place) attempted(asked, answered time.Duration, refused bool) {
	switch {
	case p.asked == 0:
		p.asked, p.answered = asked, answered
	case !refused:
		return
	case asked-p.kept > placeKept:
		p.lost, p.answered = true, answered
	}
	p.kept = answered
}

// Event records a grant. If it is not known well enough when the claim took its place, the turn is
// a late one, asked for when it certainly had.
func (r *turns) Event(ctx context.Context, e locker.Event) {
	p, ok := ctx.Value(placeKey{}).(*place)
	switch {
	case !ok || e.Kind != locker.EventGrant || p.asked == 0:
	case !p.lost && p.answered-p.asked <= fairSlack:
		r.note(fairLine, p.asked, history.Now())
	default:
		r.note(fairLate, p.answered, history.Now())
	}
}

// note records a turn. One that cannot be written is missed by the reader.
func (r *turns) note(line string, asked, granted time.Duration) {
	_, _ = r.team.rec.Begin(history.Event{Worker: "line", Key: line, Asked: asked, Start: granted},
		granted+1)
}
