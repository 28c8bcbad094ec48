package backendtest

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/locker"
)

// turns records when a process took its places in the store's line, and when it was granted the lock: an Observer.
type turns struct{ rec *history.Recorder }

// A place is one acquisition that may ask the store.
type place struct{ asked, answered time.Duration }

type placeKey struct{}

// Begin follows acquisitions, a worker's own and those of the agent of the local line, and the first question of each.
func (r *turns) Begin(ctx context.Context, op string, _ locker.Hold) (context.Context, func(locker.Hold, error)) {
	switch op {
	case locker.OpWait, locker.OpErrand:
		p := &place{}
		return context.WithValue(ctx, placeKey{}, p), func(_ locker.Hold, err error) {
			if err == nil && p.asked != 0 {
				if p.answered-p.asked <= fairSlack { // else it is not known well enough when it took its place
					r.note(p.asked, history.Now())
				}
			}
		}
	case locker.OpAttempt:
		if p, ok := ctx.Value(placeKey{}).(*place); ok && p.asked == 0 {
			p.asked = history.Now()
			return ctx, func(locker.Hold, error) { p.answered = history.Now() }
		}
	}
	return ctx, func(locker.Hold, error) {}
}

// note records a turn. One that cannot be written is missed by who reads.
func (r *turns) note(asked, granted time.Duration) {
	_, _ = r.rec.Begin(history.Event{Worker: "line", Key: fairLine, Asked: asked, Start: granted}, granted+1)
}
