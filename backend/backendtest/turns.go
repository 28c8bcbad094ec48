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
type place struct{ asked, answered time.Duration }

type placeKey struct{}

// Begin follows claims, a worker's own and those of its cohort, and the first attempt of each.
func (r *turns) Begin(ctx context.Context, op string, _ locker.Hold) (context.Context, func(locker.Hold, error)) {
	end := func(locker.Hold, error) {}
	switch op {
	case locker.OpLock, locker.OpLease:
		ctx = context.WithValue(ctx, placeKey{}, &place{})
	case locker.OpAttempt:
		if p, ok := ctx.Value(placeKey{}).(*place); ok && p.asked == 0 {
			p.asked = history.Now()
			end = func(locker.Hold, error) { p.answered = history.Now() }
		}
	}
	return ctx, end
}

// Event records a grant, unless it is not known well enough when the claim took its place.
func (r *turns) Event(ctx context.Context, e locker.Event) {
	p, ok := ctx.Value(placeKey{}).(*place)
	if ok && e.Kind == locker.EventGrant && p.asked != 0 && p.answered-p.asked <= fairSlack {
		r.note(p.asked, history.Now())
	}
}

// note records a turn. One that cannot be written is missed by who reads.
func (r *turns) note(asked, granted time.Duration) {
	_, _ = r.rec.Begin(history.Event{Worker: "line", Key: fairLine, Asked: asked, Start: granted}, granted+1)
}
