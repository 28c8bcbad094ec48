package backend

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The definite answers. Test for them with [errors.Is]; every other error is unknown, see
// [AnswerOf].
var (
	ErrHeld = errors.New("held by another claim")
	ErrLost = errors.New("claim does not hold the key")

	// ErrUnavailable: the store certainly did not execute the request (connection refused, loading,
	// no primary). Asking again later may help.
	ErrUnavailable = errors.New("store did not take the request")

	// ErrNotServing is an ErrUnavailable whose server was reached, and says itself why it does not
	// take the request for now: it has no memory or disk left, is loading, or is no primary.
	ErrNotServing = fmt.Errorf("%w", ErrUnavailable)

	// ErrQuarantined (as *QuarantineError): the store may have forgotten holds, because it
	// restarted, was flushed or promoted, and grants nothing until those have run out. Renew and
	// Release work meanwhile.
	ErrQuarantined = errors.New("store grants nothing yet")

	// The refusals: asking again cannot help until somebody changes something.
	// Always an *InvalidError.
	ErrInvalid = errors.New("invalid input")
	// The key's data is left as it was.
	ErrForeign = errors.New("key holds something that is not a lock of ours")
	// Wrong credentials or missing permissions.
	ErrDenied = errors.New("access denied")
	// Such as an evicting memory policy.
	ErrUnsafe = errors.New("store is set up so that it can lose locks silently")
	ErrClosed = errors.New("backend is closed")

	// ErrEarly (as *EarlyError): the claim's job has run too recently, or since the claim
	// was first refused, see Claim.NotBefore.
	ErrEarly = errors.New("not to be granted yet")

	// ErrMismatch: the key is in use as a semaphore of another limit. Two limits for one key are a
	// mistake in a program, and would let in more holders than either allows. It is a
	// *MismatchError where the store tells the limit.
	ErrMismatch = errors.New("key is in use with another limit")
)

// Answer is one of the three that a verb can give.
type Answer uint8

// The answers. The zero Answer is the one that must never be taken for a no.
const (
	Unknown Answer = iota // the store may have executed the request, or may yet
	Yes
	No // certainly not executed, or certainly refused
)

// AnswerOf says which answer a verb's error is. It is the only place that decides so; nothing looks
// at an error's text.
func AnswerOf(err error) Answer {
	switch {
	case err == nil:
		return Yes
	case errors.Is(err, ErrHeld), errors.Is(err, ErrLost), errors.Is(err, ErrUnavailable),
		errors.Is(err, ErrQuarantined), Refused(err):
		return No
	}
	return Unknown // safeguard: unknown
}

// Refused reports whether err is a no that repeating the same claim cannot change.
func Refused(err error) bool {
	for _, refusal := range []error{
		ErrInvalid, ErrForeign, ErrDenied, ErrUnsafe, ErrClosed,
		ErrMismatch, ErrEarly, errors.ErrUnsupported,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// A HeldError is [ErrHeld] with what is known of whoever holds.
type HeldError struct {
	Position int // in the queue, 1 is next; 0 without Claim.Queue
	// when the lease that blocks runs out unless renewed; 0 unknown, or others are to ask first
	RetryAfter time.Duration
	Token      uint64 // the key's last token when this was answered; 0 unknown. See Wake.
	Holder     Meta   // zero if unknown
}

// Error says who holds and for how long at least.
func (e *HeldError) Error() string {
	var b strings.Builder
	b.WriteString(ErrHeld.Error())
	if h := e.Holder; h != (Meta{}) {
		fmt.Fprintf(&b, " (%q on %q, pid %d", h.Service, h.Host, h.PID)
		if h.Note != "" {
			fmt.Fprintf(&b, ": %q", h.Note)
		}
		b.WriteByte(')')
	}
	if e.Position > 0 {
		fmt.Fprintf(&b, ", place %d in the queue", e.Position)
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, ", lease ends in %v unless renewed", e.RetryAfter.Round(time.Millisecond))
	}
	return b.String()
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// A QuarantineError is [ErrQuarantined] with how long it lasts. Waiting helps, so it is no refusal
// ([Refused]).
type QuarantineError struct {
	RetryAfter time.Duration // when grants begin again, by the store's clock; 0 unknown
	Why        string        // what happened: "restarted", "flushed", "promoted"; may be empty
}

// Error says why nothing is granted and for how long.
func (e *QuarantineError) Error() string {
	text := ErrQuarantined.Error()
	if e.Why != "" {
		text += ": it was " + e.Why
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(", and holds that it forgot may last for another %v",
			e.RetryAfter.Round(time.Millisecond))
	}
	return text
}

// Is makes errors.Is(err, ErrQuarantined) true.
func (e *QuarantineError) Is(target error) bool { return target == ErrQuarantined }

// An EarlyError is [ErrEarly] with the time that is left.
type EarlyError struct {
	RetryAfter time.Duration // by the store's clock
}

// Error says for how long the claim is refused.
func (e *EarlyError) Error() string {
	if e.RetryAfter <= 0 {
		return fmt.Sprintf("%v: a run that this waited for has just ended", ErrEarly)
	}
	return fmt.Sprintf("%v: another %v", ErrEarly, e.RetryAfter.Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrEarly) true.
func (e *EarlyError) Is(target error) bool { return target == ErrEarly }

// A MismatchError is [ErrMismatch] with both limits.
type MismatchError struct {
	InUse int // the limit of those who hold or wait
	Asked int // the claim's
}

// Error says which limits they are.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: %d, and not %d", ErrMismatch, e.InUse, e.Asked)
}

// Is makes errors.Is(err, ErrMismatch) true.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// An InvalidError is [ErrInvalid] with the field that is wrong and why. It is returned before
// anything is sent.
type InvalidError struct {
	// key, owner, ttl, mode, limit, meta, min_token, waiter_ttl, url, or the name of an option
	Field  string
	Value  string // shortened if long; empty if it may be secret
	Reason string
}

// Error names the field, its value (quoted) and the reason.
func (e *InvalidError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("invalid %s: %s", e.Field, e.Reason)
	}
	return fmt.Sprintf("invalid %s %q: %s", e.Field, e.Value, e.Reason)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// invalid returns an InvalidError with value cut to a length that a log line bears.
func invalid(field, value, reason string) error {
	const shown = 64
	if len(value) > shown {
		value = strings.ToValidUTF8(value[:shown], "") + "…"
	}
	return &InvalidError{Field: field, Value: value, Reason: reason}
}
