package backendtest

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/backend"
)

// A deaf backend sends nothing while it is stopped, and its verbs wait for the end of their ctx.
type deaf struct {
	backend.Backend
	stop atomic.Bool
}

func (d *deaf) Renew(ctx context.Context, c backend.Claim) error {
	if d.stop.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return d.Backend.Renew(ctx, c)
}

// A safeBuffer may be written to and read concurrently.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// A loseFirstRelease backend executes its first Release and loses the reply.
type loseFirstRelease struct {
	backend.Backend
	done atomic.Bool
}

func (l *loseFirstRelease) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	told, err := l.Backend.Release(ctx, c)
	if l.done.CompareAndSwap(false, true) {
		return backend.Released{}, ErrFault
	}
	return told, err
}

// release is b.Release, for a case that is about the answer alone.
func release(ctx context.Context, b backend.Backend, c backend.Claim) error {
	_, err := b.Release(ctx, c)
	return err
}
