package etcdbackend

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// call runs a verb, bounded by ctx, by RequestTimeout and by Close. The client heeds contexts in all it does, so there is no
// need for a goroutine.
func (b *Backend) call(ctx context.Context, key string, verb func(context.Context) error) error {
	if err := b.scheme.check(key); err != nil {
		return err
	}
	if !b.begin() {
		return backend.ErrClosed
	}
	defer b.tasks.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, b.cfg.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	err := verb(bounded)
	if backend.AnswerOf(err) != backend.Unknown {
		return err
	}
	return b.failure(ctx, err)
}

// begin counts a verb in, unless the backend is closed.
func (b *Backend) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.tasks.Add(1)
	return true
}

// spawn starts a goroutine that Close waits for, and that ends with b.ctx. It is called while a verb or another such
// goroutine is counted.
func (b *Backend) spawn(f func()) { b.tasks.Go(f) }

// span is for how long after an attempt its claim may be believed in, whatever the answer.
func (a *attempt) span() (d time.Duration) {
	if d = a.c.TTL; a.c.Queue {
		d = max(d, a.c.Linger)
	}
	return d
}

// refused notes an attempt that was not granted. What is not in the store is forgotten, and what may be is kept, to be removed
// when nobody believes in it any more.
func (b *Backend) refused(h *hold, err error) {
	var held *backend.HeldError
	switch {
	case backend.AnswerOf(err) == backend.Unknown:
	case errors.As(err, &held) && held.Position > 0:
	default:
		b.drop(h)
	}
}
