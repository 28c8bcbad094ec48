package locker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// campaignFirst and campaignMost bound the sleep between campaigns that failed without an answer
// from the store.
const (
	campaignFirst = 100 * time.Millisecond
	campaignMost  = 10 * time.Second
)

// Lead runs fn while this process leads: it waits for key, calls fn, and unlocks. If leadership is
// lost while fn runs, fn's ctx ends with cause [ErrLost], and once fn has returned, Lead campaigns
// again; so it does when the store cannot be reached.
//
// It ends when ctx does (with an error that wraps ctx.Err and its cause), when fn returns while it
// leads (with fn's error, nil included: it resigned), and when locking is refused for good (wrong
// credentials, a bad key, [ErrClosed], [ErrDeadlock] and the like). fn must return soon after its
// ctx is done: until then others may lead already. fn's value carries the fencing token if the
// Binder puts it there. An error that fn returns after a loss ends nothing: the last one that says
// more than that the term has ended is part of the error with which Lead ends later, if there is
// one.
func Lead[T any](ctx context.Context, l Locker[T], key string,
	fn func(ctx context.Context, v T) error, opts ...Option,
) error {
	if fn == nil {
		return &Error{"lead", key, &backend.InvalidError{Field: "fn", Reason: "is nil"}}
	}
	retry := waiting.NewBackoff(campaignFirst, campaignMost)
	var before []error // what fn returned when a term was lost, last
	for {
		called := false
		var failed []error
		var told error // what fn returned
		err := Do(ctx, l, key, func(ctx context.Context, v T) error {
			called = true
			told = fn(ctx, v)
			failed = unless(ctx, told)
			return nil
		}, opts...)
		// By Unlock alone: what fn returns may tell of another lock's end. safeguard: lead-own-loss
		over := errors.Is(err, ErrLost) || errors.Is(err, ErrMaxHold)
		if told != nil {
			err = withBefore(told, unless(ctx, err))
		}
		switch {
		case ctx.Err() != nil:
			why := slices.Concat([]error{ended(ctx)}, unless(ctx, err), before)
			return &Error{"lead", key, &causes{why}}
		case called && !over:
			return withBefore(err, before)
		case called:
			retry.Reset()
			if failed != nil {
				before = failed // safeguard: lead-failed
			}
		// safeguard: lead-deadlock
		case backend.Refused(err), errors.Is(err, ErrClosed), errors.Is(err, ErrDeadlock):
			return withBefore(err, before)
		default: // no answer, or a WaitLimit that ran out
			waiting.Pause(ctx, retry.Next())
		}
	}
}

// withBefore joins err with those that came before it; nil stays nil.
func withBefore(err error, before []error) error {
	if err == nil || before == nil {
		return err
	}
	return errors.Join(slices.Concat([]error{err}, before)...)
}
