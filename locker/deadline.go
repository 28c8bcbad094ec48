package locker

import "time"

// How much of a lease its holder may not believe in. A lease of TTL on a store whose clock runs up
// to driftRate faster than ours lasts at least TTL·(1−driftRate) by our clock; margin covers the
// granularity of both. (The Redlock text's CLOCK_DRIFT: 1 % and 2 ms; 1 ms more for stores that
// count milliseconds.)
const (
	driftRate = 100 // as a divisor: 1 %
	margin    = 3 * time.Millisecond
)

// napless is the length below which a difference of two clocks is the time it took to read them, or
// the scheduler's between the two, and no suspend: no machine sleeps and wakes up in less.
const napless = 20 * time.Millisecond

// An instant is a point in time by both clocks: the one that timers run on, and how long the
// machine has slept so far.
type instant struct {
	at    time.Time
	slept time.Duration
}

// A deadline is until when a lease is provably good. It is counted from before the request was
// sent: the store's lease began later than that, so it ends later than the deadline
// (docs/guarantees.md, Lemma L). Time that the machine spends suspended counts, although the
// monotonic clock stands still then, and so do timers.
type deadline instant

// now reads both clocks.
func (c *core) now() instant {
	at := time.Now()
	return instant{at, c.suspended(at)}
}

// deadlineOf returns the deadline of a lease of ttl that was asked for at sent.
func deadlineOf(sent instant, ttl time.Duration) deadline {
	return deadline{sent.at.Add(ttl - ttl/driftRate - margin), sent.slept}
}

// local is d on the monotonic clock as it is now: earlier by the time slept since d was made.
func (d deadline) local(now instant) time.Time {
	if slept := now.slept - d.slept; slept > napless {
		return d.at.Add(-slept)
	}
	return d.at
}

// left is how long d still is. It is negative once d has passed.
func (d deadline) left(now instant) time.Duration { return d.local(now).Sub(now.at) }
