package locker

import "time"

// How much of a lease its holder may not believe in. A lease of TTL on a store whose clock runs up to driftRate faster than
// ours, relative to each other, lasts at least TTL·(1−driftRate) by our clock; margin covers the granularity of both.
// (The Redlock text's CLOCK_DRIFT: 1 % and 2 ms; 1 ms more for stores that count milliseconds.)
const (
	driftRate = 100 // as a divisor: 1 %
	margin    = 3 * time.Millisecond
)

// napless is the length below which a difference of two clocks is the time it took to read them (or the scheduler's, between
// the two), not a suspend: no machine sleeps and wakes up in less.
const napless = 20 * time.Millisecond

// An instant is a point in time by both clocks: the one that timers run on, and how long the machine has slept so far.
type instant struct {
	at     time.Time
	asleep time.Duration
}

// A deadline is until when a hold is provably good. It is counted from before the request was sent: the store's lease began
// later than that, so it ends later than the deadline (docs/guarantees.md, Lemma L). Time that the machine spends suspended counts,
// although the monotonic clock stands still then, and so do timers.
type deadline instant

// now reads both clocks.
func (c *core) now() instant {
	at := time.Now()
	return instant{at, c.asleep(at)}
}

// deadlineOf returns the deadline of a lease of ttl that was asked for at sent.
func deadlineOf(sent instant, ttl time.Duration) deadline {
	return deadline{sent.at.Add(ttl - ttl/driftRate - margin), sent.asleep}
}

// remaining is how long d still is, by now. It is negative once d has passed.
func (c *core) remaining(d deadline) time.Duration { return d.after(c.now()) }

// after is how long d still is, by then.
func (d deadline) after(then instant) time.Duration { return d.awake(then.asleep).Sub(then.at) }

// until is d on the present monotonic clock: earlier by the time slept since.
func (c *core) until(d deadline) time.Time { return d.awake(c.asleep(time.Now())) }

func (d deadline) awake(asleep time.Duration) time.Time {
	if slept := asleep - d.asleep; slept > napless {
		return d.at.Add(-slept)
	}
	return d.at
}
