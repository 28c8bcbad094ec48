package waiting

import (
	"fmt"
	"time"
)

// Mode is how a waiter learns that it is worth asking again.
type Mode string

// The modes. The zero Mode is Auto.
const (
	Auto Mode = "" // the best that the backend offers: Handoff, else Notify, else Poll
	// Processes take turns, first come, first served: the release itself grants the next.
	Handoff Mode = "handoff"
	Notify  Mode = "notify" // woken by the release, then competes with the others that were woken
	// Asks with jittered backoff alone, for stores that forbid subscriptions.
	Poll Mode = "poll"
)

// The defaults of [Config].
const (
	DefaultFallback = time.Second
	DefaultInitial  = 5 * time.Millisecond
	DefaultMax      = 500 * time.Millisecond
	DefaultPasses   = 512
	DefaultPassTime = 10 * time.Millisecond
)

// maxDuration keeps sums of durations from overflowing; nobody waits for longer without a word.
const maxDuration = 24 * time.Hour

// Config says how to wait. The zero value is ready for use.
type Config struct {
	Mode Mode

	// Fallback is how long a waiter that is to be woken sleeps at most before it asks all the same,
	// since any wake-up may be lost. Jittered by a fifth. Default 1s.
	Fallback time.Duration

	// Initial and Max bound the sleep between two attempts in Mode Poll: from Initial, doubling,
	// up to Max, each drawn at random between nothing and twice its size (full jitter). Defaults
	// 5ms and 500ms.
	Initial, Max time.Duration

	// Passes and PassTime are the budget of a cohort: goroutines of one process hand a lease on
	// among themselves, without asking the store, up to Passes times in a row and for up to
	// PassTime after the store granted it; then it goes back, to whoever is next in the store's
	// queue. Defaults 512 and 10ms. Negative Passes: never, so that the store sees each
	// acquisition.
	Passes   int
	PassTime time.Duration

	// FailFast makes a wait that is estimated to take longer than its caller has time for fail at
	// once, instead of when the time is over. See locker.FailFast.
	FailFast bool
}

// WithDefaults returns c with every zero field set, or an error that names the field.
func (c Config) WithDefaults() (Config, error) {
	switch c.Mode {
	case Auto, Handoff, Notify, Poll:
	default:
		return c, fmt.Errorf("mode %q is none of handoff, notify, poll", string(c.Mode))
	}
	for _, f := range []struct {
		name  string
		field *time.Duration
		value time.Duration
	}{
		{"fallback", &c.Fallback, DefaultFallback},
		{"initial", &c.Initial, DefaultInitial},
		{"max", &c.Max, max(DefaultMax, c.Initial)},
		{"pass_time", &c.PassTime, DefaultPassTime},
	} {
		if *f.field < 0 {
			return c, fmt.Errorf("%s %v is negative", f.name, *f.field)
		}
		if *f.field > maxDuration {
			return c, fmt.Errorf("%s %v is over %v", f.name, *f.field, maxDuration)
		}
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if c.Passes == 0 {
		c.Passes = DefaultPasses
	}
	if c.Max < c.Initial {
		return c, fmt.Errorf("max %v is below initial %v", c.Max, c.Initial)
	}
	return c, nil
}
