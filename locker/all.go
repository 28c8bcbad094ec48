package locker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Guards are several held locks, got with [All]. They are safe for concurrent use. Unlock them. Nil
// ones count as unlocked.
type Guards[T any] struct {
	keys   []string
	guards []*Guard[T] // in the order of keys
}

// All locks every one of keys, or none. It takes them in sorted order, so that two calls of All
// cannot wait for each other, and gives up what it has, last first, when it fails. ctx and a
// [WaitLimit] bound the whole. A key that is given twice is locked once. The error is that of the
// key that failed; no keys at all is an *[backend.InvalidError].
//
// The keys are locked one after the other, each under the Context of the one before: if one is lost
// while another is still waited for, All fails.
func All[T any](ctx context.Context, l Locker[T], keys []string, opts ...Option) (*Guards[T], error) {
	if len(keys) == 0 {
		return nil, &Error{"lock", "", &causes{[]error{ErrNotAcquired, &backend.InvalidError{Field: "keys", Reason: "is empty"}}}}
	}
	var o call
	o.apply(opts)
	sorted := slices.Compact(slices.Sorted(slices.Values(keys)))
	all := &Guards[T]{keys: sorted}
	start := time.Now()
	for _, key := range sorted {
		each := opts
		if o.waitLimit > 0 { // what is left of it; at least a moment, in which it runs out
			each = append(slices.Clone(opts), WaitLimit(max(o.waitLimit-time.Since(start), 1)))
		}
		g, err := l.Lock(ctx, key, each...)
		if err != nil {
			return nil, errors.Join(err, all.unlockBehind())
		}
		all.guards = append(all.guards, g)
		ctx = g.Context()
	}
	return all, nil
}

// unlockBehind unlocks, and goes on behind the caller's back if that takes long: a store that is silent
// would make it wait for a TTL per key, which is no part of the time that the caller gave.
func (g *Guards[T]) unlockBehind() error {
	var err error
	if behind(func() { err = g.Unlock() }) { // each guard is counted by its Client until it is unlocked
		return err
	}
	return nil
}

// Keys returns the locked keys, sorted.
func (g *Guards[T]) Keys() []string {
	if g == nil {
		return nil
	}
	return slices.Clone(g.keys)
}

// Guard returns the guard of key, or nil if it is not among the keys.
func (g *Guards[T]) Guard(key string) *Guard[T] {
	if g == nil {
		return nil
	}
	if i, ok := slices.BinarySearch(g.keys, key); ok && i < len(g.guards) {
		return g.guards[i]
	}
	return nil
}

// Values returns the protected values in the order of Keys, while every hold is good; else an error
// that wraps [ErrLost], [ErrMaxHold] or [ErrUnlocked].
func (g *Guards[T]) Values() ([]T, error) {
	if g == nil {
		return nil, &Error{"value", "", ErrUnlocked}
	}
	values := make([]T, 0, len(g.guards))
	for _, guard := range g.guards {
		v, err := guard.Value()
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// Context returns a context that is done when the first of the holds ends. Its Cause is then that
// of [Guard.Context].
func (g *Guards[T]) Context() context.Context {
	if g == nil || len(g.guards) == 0 {
		return unlocked
	}
	return g.guards[len(g.guards)-1].Context() // a descendant of all the others'
}

// Unlock releases all, last first, and returns the errors of [Guard.Unlock] joined.
func (g *Guards[T]) Unlock() error {
	if g == nil {
		return &Error{"unlock", "", ErrUnlocked}
	}
	var errs []error
	for _, guard := range slices.Backward(g.guards) {
		errs = append(errs, guard.Unlock())
	}
	return errors.Join(errs...)
}
