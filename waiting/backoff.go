package waiting

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/holdfast-go/holdfast/internal/jitter"
)

// A Backoff says how long to sleep before the next attempt. It is not for concurrent use: each
// waiter has its own.
type Backoff struct{ b backoff.ExponentialBackOff }

// NewBackoff returns a Backoff whose base doubles from initial up to limit, for ever. Each sleep is
// drawn at random between nothing and twice the base, capped at limit: waiters that met once do not
// meet again.
func NewBackoff(initial, limit time.Duration) *Backoff {
	w := &Backoff{backoff.ExponentialBackOff{
		InitialInterval:     initial,
		RandomizationFactor: 0, // see Next
		Multiplier:          2,
		MaxInterval:         limit,
		MaxElapsedTime:      0, // never gives up: ctx bounds a wait
		Clock:               backoff.SystemClock,
	}}
	w.b.Reset()
	return w
}

// Next returns the next sleep: at least a millisecond, so that no loop spins, and at most the
// limit.
func (w *Backoff) Next() time.Duration {
	return max(time.Millisecond, min(jitter.N(2*w.b.NextBackOff()), w.b.MaxInterval))
}

// Reset starts again from the initial sleep.
func (w *Backoff) Reset() { w.b.Reset() }

// Jitter returns d changed by up to a fifth either way, so that timers that were set together do
// not fire together.
func Jitter(d time.Duration) time.Duration {
	return d - d/5 + jitter.N(2*(d/5))
}
