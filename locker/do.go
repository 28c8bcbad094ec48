package locker

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/backend"
)

// Do is the safest way to lock: it locks key, calls fn and unlocks, also if fn panics. fn's ctx
// ends with cause [ErrLost] when the hold is lost, and with ctx. That stops nothing by itself: fn
// hands its ctx to what it calls, and looks at ctx.Err() in each turn of a loop. v must not be used
// after fn has returned.
//
// The error is Lock's (then fn was not called), else fn's joined with Unlock's: if it wraps
// ErrLost, fn ran, but not all of it under the lock.
func Do[T any](ctx context.Context, l Locker[T], key string,
	fn func(ctx context.Context, v T) error, opts ...Option,
) (err error) {
	if fn == nil {
		return &Error{"do", key, &backend.InvalidError{Field: "fn", Reason: "is nil"}}
	}
	g, err := l.Lock(ctx, key, opts...)
	if err != nil {
		return err
	}
	defer func() {
		if unlock := g.Unlock(); unlock != nil {
			err = errors.Join(err, unlock)
		}
	}()
	v, err := g.Value()
	if err != nil {
		return err
	}
	return fn(g.Context(), v)
}
