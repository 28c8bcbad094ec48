package tracing

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// resultOf is what came of an acquisition or an attempt. What ended a wait goes before what the
// store said last.
func resultOf(err error) string {
	switch {
	case err == nil:
		return ResultGranted
	case errors.Is(err, locker.ErrWouldDeadlock):
		return ResultDeadlock
	case errors.Is(err, context.DeadlineExceeded):
		return ResultTimeout
	case errors.Is(err, context.Canceled):
		return ResultCancelled
	case errors.Is(err, locker.ErrClosed):
		return ResultClosed
	case errors.Is(err, backend.ErrHeld):
		return ResultHeld
	case errors.Is(err, backend.ErrLost):
		return ResultLost
	case backend.Refused(err):
		return ResultRefused
	case errors.Is(err, backend.ErrQuarantined):
		return ResultQuarantined
	case errors.Is(err, backend.ErrUnavailable):
		return ResultUnavailable
	}
	return ResultUnanswered
}

// renewalOf is what came of a renewal or a release.
func renewalOf(err error) string {
	if err == nil {
		return ResultConfirmed
	}
	return resultOf(err)
}

// failed reports whether a result is an error of the operation, and not one of the ways in which it
// may go: another held the lock, the caller went away, the program ends.
func failed(result string) bool {
	switch result {
	case ResultGranted, ResultConfirmed, ResultHeld, ResultCancelled, ResultClosed:
		return false
	}
	return true
}

// causeOf is why a hold ended, "" for Unlock.
func causeOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, locker.ErrMaxHold):
		return CauseMaxHold
	case errors.Is(err, locker.ErrLeaked):
		return CauseLeaked
	case errors.Is(err, locker.ErrExpired):
		return CauseExpired
	case errors.Is(err, locker.ErrClosed):
		return CauseClosed
	case errors.Is(err, backend.ErrLost), errors.Is(err, backend.ErrForeign):
		return CauseStore
	case errors.Is(err, locker.ErrLost):
		return CauseOther
	}
	return ""
}
