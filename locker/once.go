package locker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Once is [Do] for a job that many instances try: fn runs unless it ran less than every ago, and
// ran says whether it did. The time counts from when the last run began, by the store's clock, so
// it does not matter how short fn is, or what the instances' clocks say. Each call decides by its
// own every; a run is remembered for twice that of its own call, and for a minute at least.
//
// While one runs fn, others wait, and are told afterwards that it ran, however long that took; ctx
// and [WaitLimit] bound the wait. That it ran is noted in the request that unlocks, even if fn
// failed or panicked; with [OnSuccess] only if it returned nil. What is not noted is a run whose
// lock was lost, one that fails with an error that is [ErrLost] or [ErrMaxHold], and one whose
// process crashed:
// then another may run fn, as soon as the lease is over, and so more than once in the time. Without
// faults fn runs at most once in it, and with them at least once. Its token, if the Binder puts it
// into the value, tells the runs apart.
//
// For a job of a schedule give less than its period: a try that comes early, by a quick timer or a
// clock that was set, is refused, and the job left out until the next. With every at three quarters
// of the period, instances whose clocks differ by up to half a period run the job once in each.
//
// The error is as Do's; it is nil where fn did not run because it is too early. A backend that has
// no such marks (Capabilities.NotBefore: a quorum, and the layouts of other libraries) refuses with
// [errors.ErrUnsupported]. opts must not ask for a lock that several hold.
func Once[T any](ctx context.Context, l Locker[T], key string, every time.Duration,
	fn func(ctx context.Context, v T) error, opts ...Option,
) (ran bool, err error) {
	if fn == nil {
		return false, &Error{"once", key, &backend.InvalidError{Field: "fn", Reason: "is nil"}}
	}
	var onSuccess bool
	g, err := l.Lock(ctx, key, append(slices.Clone(opts), func(c *call) {
		c.every, c.once, c.waits, onSuccess = every, true, true, c.onSuccess
	})...)
	if errors.Is(err, ErrEarly) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	end := g.Forgo // until fn runs
	defer func() {
		if unlock := end(); unlock != nil {
			err = errors.Join(err, unlock)
		}
	}()
	v, err := g.Value()
	if err != nil {
		return false, err
	}
	if !onSuccess { // safeguard: on-success
		end = g.Unlock // also if fn panics
	}
	err = fn(g.Context(), v)
	switch {
	// The run was cut off, even if the hold is still good.
	case errors.Is(err, ErrLost), errors.Is(err, ErrMaxHold):
		end = g.Forgo
	case err == nil:
		end = g.Unlock
	}
	return true, err
}
