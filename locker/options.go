package locker

import (
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// An Option adjusts one call of Lock, TryLock or [Do]. A backend that lacks what an option asks for
// refuses the call with [errors.ErrUnsupported] before anything is written.
type Option func(*call)

// call is what the options of one call add up to.
type call struct {
	mode      backend.Mode
	limit     int
	weight    int // of a permit; 0 is 1
	ttl       time.Duration
	owner     string // of a re-entrant claim
	reentrant bool
	ticket    string        // the hold to adopt
	load      bool          // the state, for Store
	every     time.Duration // of Once
	maxHold   time.Duration
	waitLimit time.Duration
	failFast  bool
	wait      waiting.Mode // in place of Config.Wait's; empty for that
	site      site
}

// apply adds options. Nil is none.
func (c *call) apply(opts []Option) {
	for _, opt := range opts {
		if opt != nil {
			opt(c)
		}
	}
}

// Shared asks for the lock together with other Shared holders: the reading side of a reader–writer
// lock.
func Shared() Option { return func(c *call) { c.mode = backend.Shared } }

// Permit asks for one of limit permits of the key: a semaphore. All who use the key must give the
// same limit: while others hold or wait with another one, Lock fails at once with a
// *[backend.MismatchError].
func Permit(limit int) Option {
	return func(c *call) { c.mode, c.limit = backend.Permit, limit }
}

// Weight has a [Permit] count for n of the limit: a share of what the key stands for, such as
// gigabytes of memory, instead of one place. The weights of those who hold never add up to more
// than the limit. A Weight is at least 1 (0 is taken for 1) and at most the limit, and without
// Permit it is an error.
//
// Where the store has a queue, a heavy claim that is first in it waits until it fits and is not
// overtaken by lighter ones: until then some permits are free and nobody gets them. On a store
// without a queue whoever fits gets in, and heavy claims may wait for as long as light ones come.
//
// Clients of versions that do not know weights refuse a key while a weighted claim holds it or
// waits for it ([backend.ErrForeign]): so all who use the key are to be brought up to date first.
func Weight(n int) Option { return func(c *call) { c.weight = n } }

// TTL overrides Config.TTL for this hold. It never turns renewal off.
func TTL(d time.Duration) Option { return func(c *call) { c.ttl = d } }

// MaxHold overrides [Config.MaxHold] for this hold; zero or less is none.
func MaxHold(d time.Duration) Option { return func(c *call) { c.maxHold = d } }

// Reentrant lets the same owner lock the same key again, here or in another process; the key is
// free when every hold is released. An owner is a name that only those share who may enter
// together.
func Reentrant(owner string) Option {
	return func(c *call) { c.owner, c.reentrant = owner, true }
}

// WaitLimit bounds this call's wait, like a deadline on its ctx would, but does not touch the ctx,
// and so neither the guard's, which is derived from it. A wait that runs out fails with
// [context.DeadlineExceeded]; a negative limit has run out before. Zero is no limit.
func WaitLimit(d time.Duration) Option {
	if d < 0 {
		d = 1
	}
	return func(c *call) { c.waitLimit = d }
}

// FailFast makes this call fail with [ErrWouldTimeout] instead of waiting, as soon as the wait is
// estimated to be longer than its ctx and WaitLimit allow: when it begins, and whenever it asks the
// store again. The estimate is that of [backend.HeldError], and can be wrong either way. Where this
// client has not held the key within the last minute or so there is none, and the call waits.
// waiting.Config.FailFast is the same for all calls.
func FailFast() Option { return func(c *call) { c.failFast = true } }

// WaitMode overrides the Mode of Config.Wait for this call. A backend that lacks what a mode needs
// refuses the call with [errors.ErrUnsupported]. Calls of one process with different modes share no
// leases.
func WaitMode(m waiting.Mode) Option { return func(c *call) { c.wait = m } }
