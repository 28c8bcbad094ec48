// Package suspend tells for how long the machine slept. Leases run on meanwhile in their store, and
// Go's monotonic clock and timers stand still; so whoever reckons with a lease adds it.
package suspend

import "time"

// Napless is the length below which a difference of two answers of [Slept] is the time it took to
// read two clocks, or the scheduler's between the two, and no suspend: no machine sleeps and wakes
// up in less.
const Napless = 20 * time.Millisecond
