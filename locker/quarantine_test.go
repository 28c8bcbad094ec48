package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// A store that grants nothing yet is waited for like a holder: without polling, beyond
// StoreTimeout, and within ctx.
// covers: R3, Q10, I11
func TestQuarantineIsWaitedFor(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{StoreTimeout: time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			b.Backend = membackend.NewWith(membackend.Config{Quarantine: time.Hour})
			_, err := l.TryLock(t.Context(), "k")
			var q *backend.QuarantineError
			if !errors.As(err, &q) || q.RetryAfter != time.Hour {
				t.Errorf("TryLock = %v, want a *QuarantineError", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = l.Lock(ctx, "k")
			wantErr(t, err, locker.ErrNotAcquired, context.DeadlineExceeded, backend.ErrQuarantined)
			b.acquires.Store(0)
			start := time.Now()
			defer mustLock(t, l, "k").Unlock()
			if d := time.Since(start); d < 59*time.Minute || d > time.Hour {
				t.Errorf("locked after %v", d)
			}
			if n := b.acquires.Load(); n > 3 {
				t.Errorf("asked %d times meanwhile", n)
			}
		})
}
