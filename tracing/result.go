package tracing

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// meanings say what errors are shown as. The first that fits counts.
type meanings []struct {
	is    func(error) bool
	shown string
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// results are of acquisitions, attempts, renewals and releases. What ended a wait goes before what
// the store said last.
var results = meanings{
	{is(locker.ErrDeadlock), ResultDeadlock},
	{is(context.DeadlineExceeded), ResultTimeout},
	{is(context.Canceled), ResultCancelled},
	{is(locker.ErrClosed), ResultClosed},
	{is(backend.ErrHeld), ResultHeld},
	{is(backend.ErrLost), ResultLost},
	{backend.Refused, ResultRefused},
	{is(backend.ErrQuarantined), ResultQuarantined},
	{is(backend.ErrUnavailable), ResultUnavailable},
	{func(err error) bool { return err != nil }, ResultUnanswered},
}

// causes are why holds end, but by Unlock.
var causes = meanings{
	{is(locker.ErrMaxHold), CauseMaxHold},
	{is(locker.ErrLeaked), CauseLeaked},
	{is(locker.ErrExpired), CauseExpired},
	{is(locker.ErrClosed), CauseClosed},
	{is(backend.ErrLost), CauseStore},
	{is(backend.ErrForeign), CauseStore},
	{is(locker.ErrLost), CauseOther},
}

// of returns what err is shown as, or "".
func (all meanings) of(err error) string {
	for i := 0; err != nil && i < len(all); i++ {
		if all[i].is(err) {
			return all[i].shown
		}
	}
	return ""
}

// resultOf is what came of an operation, good if nothing went wrong.
func resultOf(err error, good string) string { return cmp.Or(results.of(err), good) }

// harmless are the ways in which an operation may go: another held the lock, the caller went away,
// the program ends.
var harmless = []string{ResultGranted, ResultConfirmed, ResultHeld, ResultCancelled, ResultClosed}

// failed reports whether a result is an error of the operation.
func failed(result string) bool { return !slices.Contains(harmless, result) }
