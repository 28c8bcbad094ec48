// Package jobs lets river run jobs about one thing one at a time. By itself it runs them side by
// side, also a job beside itself, if that goes on for longer than RescueStuckJobsAfter.
package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/locker"
)

// OneAtATime is for river.Config's Plugins, or for the Middleware of a worker. A job runs while it
// holds the lock that key names, such as its order; "" needs none. One that comes while another
// holds the lock does not wait, as it would keep a worker from other keys: it is snoozed until the
// lock is likely to be free, and for no less than snooze, and that costs none of its attempts.
// Which of those that are snoozed is next is chance.
//
// If the lock is lost the job's context ends, and so does the job, with an error that is
// locker.ErrLost, even if it says that it succeeded: river runs it again. locker.HoldFrom finds the
// fencing token in the context, which tells the runs apart. If the store does not answer, the job
// fails without being run, and that is an attempt.
func OneAtATime(c *locker.Client[struct{}], snooze time.Duration,
	key func(*rivertype.JobRow) string,
) river.WorkerMiddlewareFunc {
	return func(ctx context.Context, job *rivertype.JobRow,
		work func(context.Context) error,
	) error {
		name := key(job)
		if name == "" {
			return work(ctx)
		}
		g, err := c.TryLock(ctx, name)
		if held := (*locker.HeldError)(nil); errors.As(err, &held) {
			return river.JobSnooze(max(snooze, held.Wait))
		}
		if err != nil {
			return err
		}
		// The work is done: if this is not confirmed, the lock is free when its lease runs out.
		defer func() { _ = g.Unlock() }()
		err = work(g.Context())
		_, lost := g.Value()
		return errors.Join(err, lost)
	}
}
