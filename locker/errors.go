package locker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// What can become of a lock. Test for them with [errors.Is].
var (
	ErrNotAcquired = errors.New("lock not acquired")
	ErrLost        = errors.New("lock lost")
	ErrUnlocked    = errors.New("already unlocked")
	ErrMaxHold     = errors.New("lock held for longer than MaxHold")
	ErrClosed      = errors.New("locker is closed")

	// ErrDeadlock: Lock waited for somebody who waited, perhaps by way of others, for a lock of its
	// own caller, and was the one of them to give up, see [Config].BreakDeadlocks. It is a
	// *[DeadlockError]. Unlock what the caller holds, so that the others go on, and begin again.
	ErrDeadlock = errors.New("deadlock")

	// ErrWouldDeadlock, which is an ErrDeadlock, too: the ctx given to Lock comes from a guard of
	// the same key, so Lock would wait for its own caller.
	ErrWouldDeadlock = fmt.Errorf("%w: lock is held by the caller", ErrDeadlock)

	// ErrEarly: a try with [OncePer] came within the period of the last run. Always an
	// *[EarlyError], together with ErrNotAcquired.
	ErrEarly = backend.ErrEarly

	// ErrWouldTimeout: a Lock with [FailFast] did not wait, as its time would most likely have run
	// out first. Always a *[WouldTimeoutError].
	ErrWouldTimeout = errors.New("wait would time out")

	// Why a lock was lost, beside [backend.ErrLost] for a store that says so, and ErrClosed. They
	// come with ErrLost.
	ErrExpired = errors.New("the lease ran out without a confirmed renewal")
	ErrLeaked  = errors.New("its guard was dropped without Unlock")
)

// An Error is what every method of this package fails with.
type Error struct {
	// lock, trylock, bind, value, check, unlock, do, lead, once, update, get, detach, adopt,
	// holders
	Op  string
	Key string // as the caller gave it, without the namespace
	Err error
}

// Error names the operation, the key (shortened if long) and the cause.
func (e *Error) Error() string {
	const shown = 64
	key := e.Key
	if len(key) > shown {
		key = strings.ToValidUTF8(key[:shown], "") + "…"
	}
	return "holdfast: " + e.Op + " " + strconv.Quote(key) + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// An EarlyError is [ErrEarly] with the time that is left of the period, by the store's clock.
type EarlyError = backend.EarlyError

// A HeldError is a *[backend.HeldError] with what this client makes of it.
type HeldError struct {
	// in the queue, with those of this process who are before; 1 is next; 0 without a queue
	Position int

	// Wait is an estimate: as many holds as there are places up to this one, each as long as this
	// client's own holds of the key have lately been; 0 unknown. It is no bound either way. Others
	// may hold for longer or shorter, a place may stand for several holds of one process, and it
	// may be given up.
	Wait time.Duration

	Err *backend.HeldError // the store's answer
}

// Error says who holds, and how long the wait may be.
func (e *HeldError) Error() string {
	held := *e.Err
	held.Position = e.Position
	if e.Wait > 0 {
		return fmt.Sprintf("%v, about %v to wait", &held, e.Wait.Round(time.Millisecond))
	}
	return held.Error()
}

// Unwrap returns the store's answer.
func (e *HeldError) Unwrap() error { return e.Err }

// A WouldTimeoutError is [ErrWouldTimeout] with what it was reckoned from.
type WouldTimeoutError struct {
	RetryAfter time.Duration // the estimated wait, which is longer than Left; see [HeldError], Wait
	Left       time.Duration // of the time that the caller had for waiting
	Position   int           // in the queue, 1 is next; 0 unknown
	Holder     backend.Meta  // zero if unknown
	Err        error         // the answer behind it: a *[HeldError] or a *[backend.QuarantineError]
}

// Error gives both times, and the answer.
func (e *WouldTimeoutError) Error() string {
	const ms = time.Millisecond
	return fmt.Sprintf("%v: %v to wait, %v left: %v", ErrWouldTimeout, e.RetryAfter.Round(ms),
		e.Left.Round(ms), e.Err)
}

// Is makes errors.Is(err, ErrWouldTimeout) true.
func (e *WouldTimeoutError) Is(target error) bool { return target == ErrWouldTimeout }

// Unwrap returns the answer.
func (e *WouldTimeoutError) Unwrap() error { return e.Err }

// errUnanswered is the error of a wait for a store that does not answer.
func errUnanswered(timeout time.Duration, why error) error {
	if why == nil {
		return fmt.Errorf("no answer from the store within %v", timeout)
	}
	return fmt.Errorf("no answer from the store within %v: %w", timeout, why)
}

// notAcquired wraps ErrNotAcquired together with what ended the attempt: the ctx, if it did, and
// the store's last answer.
func notAcquired(ctx context.Context, last error) error {
	errs := []error{ErrNotAcquired}
	if err := ended(ctx); err != nil {
		errs = append(errs, err)
	}
	switch {
	case last == nil, len(errs) > 1 && errors.Is(errs[1], last):
	default:
		errs = append(errs, last)
	}
	return &causes{errs}
}

// wrapUnknown marks err if the outcome is unknown.
func wrapUnknown(err error) error {
	if backend.AnswerOf(err) == backend.Unknown && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("no answer from the store: %w", err)
	}
	return err
}

// ended is what ended ctx, with its cause if that is something else; nil if nothing has.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(err, cause) {
		return err
	}
	return &causes{[]error{err, cause}}
}

// unless is err, but not if it says no more than that ctx has ended.
func unless(ctx context.Context, err error) []error {
	if late, ok := err.(*callerLate); ok { //nolint:errorlint // as below
		err = late.cause
	}
	//nolint:errorlint // what wraps them says more
	if err == nil || err == ctx.Err() || err == context.Cause(ctx) {
		return nil
	}
	return []error{err}
}

// lostBecause wraps ErrLost with why.
func lostBecause(why error) error { return fmt.Errorf("%w: %w", ErrLost, why) }

// causes is several errors in one line, the first in front: "lock not acquired: context deadline
// exceeded: held by …".
type causes struct{ errs []error }

func (c *causes) Error() string {
	texts := make([]string, len(c.errs))
	for i, err := range c.errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, ": ")
}

func (c *causes) Unwrap() []error { return c.errs }
