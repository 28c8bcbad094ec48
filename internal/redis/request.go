package redis

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// A Request is a script, or something else that is asked of the server, and its answer.
type Request struct {
	Ctx    Bounded
	Script script.Script
	Keys   []string
	Args   []string
	Other  func(context.Context) (any, error) // instead of a script

	Reply any
	Err   error

	done  chan struct{}              // one slot: a lane never waits for a caller that has left
	then  func(reply any, err error) // instead of done
	timer *time.Timer                // of a caller who waited for a lane
}

// A Bounded context ends with another one, and has a deadline of its own too. It needs no timer, so it is for who looks at
// deadlines by himself. (context.WithTimeout and its timer are a tenth of what a request costs.)
type Bounded struct {
	context.Context
	Limit time.Time
}

// Bound returns ctx with a deadline that is at most limit from now. ours says that it is not ctx's own.
func Bound(ctx context.Context, limit time.Duration) (c Bounded, ours bool) {
	c = Bounded{ctx, time.Now().Add(limit)}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(c.Limit) {
		c.Limit = deadline
		return c, false
	}
	return c, true
}

// Deadline is the earlier one.
func (b Bounded) Deadline() (time.Time, bool) { return b.Limit, true }

// Err notices the deadline by itself.
func (b Bounded) Err() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	if !time.Now().Before(b.Limit) {
		return context.DeadlineExceeded
	}
	return nil
}
