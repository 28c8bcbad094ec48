// Package tasks lets a task of asynq be done once, which by itself it may be twice: if it is
// enqueued twice, or if its worker is so slow that asynq takes it for dead and hands the task to
// another.
package tasks

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// Once is for ServeMux.Use. A task runs while it holds the lock that key names, such as its order,
// and when it has succeeded it is done: for as long as keep says, others of the key are
// acknowledged without being run. One that fails may be tried again at once. One that comes while
// another of the key runs fails with an error that is backend.ErrHeld, for asynq to try it later;
// see IsFailure.
//
// If the lock is lost the handler's context ends, and the task fails, and is tried again: so it
// runs at least once, and at most once unless a worker loses its lock. locker.HoldFrom finds the
// fencing token in the context, which tells the runs apart.
func Once(c *locker.Client[struct{}], keep time.Duration,
	key func(*asynq.Task) string,
) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			g, err := c.TryLock(ctx, key(task), locker.OncePer(keep))
			if errors.Is(err, locker.ErrEarly) {
				return nil // it is done
			}
			if err != nil {
				return err
			}
			done := false
			defer func() {
				if !done { // it failed, or panicked
					_ = g.Forgo()
				}
			}()
			if err := next.ProcessTask(g.Context(), task); err != nil {
				return err
			}
			done = true
			return g.Unlock()
		})
	}
}

// IsFailure is for asynq.Config: to come while another task of the key runs costs none of the
// task's retries.
func IsFailure(err error) bool { return !errors.Is(err, backend.ErrHeld) }
