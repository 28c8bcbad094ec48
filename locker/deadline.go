package locker

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/suspend"
)

// How much of a lease its holder may not believe in. A lease of TTL on a store whose clock runs up
// to driftRate faster than ours lasts at least TTL·(1−driftRate) by our clock; margin covers the
// granularity of both. (The Redlock text's CLOCK_DRIFT: 1 % and 2 ms; 1 ms more for stores that
// count milliseconds.)
const (
	driftRate = 100 // as a divisor: 1 %
	margin    = 3 * time.Millisecond
)

// An instant is a point in time, as nanoseconds since the client was made, that the machine spent
// suspended included. Go's timers and monotonic clock stand still then, and the store's lease does
// not: so leases are reckoned in instants.
type instant time.Duration

// now returns the present.
func (c *core) now() instant { return c.instant(time.Now()) }

// instant returns the instant of t, which is now. A suspend that is found once counts from then on,
// for whatever is compared with a later instant.
func (c *core) instant(t time.Time) instant {
	slept, before := c.suspended(t), c.slept.Load()
	if slept-time.Duration(before) > suspend.Napless { // safeguard: suspend
		c.slept.CompareAndSwap(before, int64(slept)) // else another has found at least as much
	} else {
		slept = time.Duration(before)
	}
	return instant(t.Sub(c.base) + slept)
}

// deadlineOf returns until when a lease of ttl is provably good that was asked for at sent. It is
// counted from before the request was sent: the store's lease began later than that, so it ends
// later than the deadline (docs/guarantees.md, Lemma L).
func deadlineOf(sent instant, ttl time.Duration) instant {
	return sent + instant(ttl-ttl/driftRate-margin) // safeguard: drift
}

// toTime converts i to a time.Time, assuming no further suspend.
func (c *core) toTime(i instant) time.Time {
	now := time.Now()
	return now.Add(time.Duration(i - c.instant(now)))
}
