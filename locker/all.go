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

// All locks every one of keys, or none. Keys that are free are asked for at once, 64 at a time, so
// that ten of them take as long as one; etcd, and a Redis that is no Cluster, take them in one
// request. The first that is not free is waited for, and so on in sorted order, while those before
// it are held and none behind it is: so two calls of All cannot wait for each other. When it fails
// it gives up what it has. ctx and a [WaitLimit] bound the whole. A key that is given twice is
// locked once. The error is that of the key that failed; no keys at all is a
// *[backend.InvalidError].
//
// Each key is locked under the Context of the one before: if one is lost while another is still
// waited for, All fails. The hold of a key that was given back for a while has the [Hold].TookOver
// of the one before that. Where l is no *[Client], each is locked by its Lock, one after the other.
func All[T any](ctx context.Context, l Locker[T], keys []string,
	opts ...Option,
) (_ *Guards[T], err error) {
	if len(keys) == 0 {
		none := &backend.InvalidError{Field: "keys", Reason: "is empty"}
		return nil, &Error{"lock", "", &causes{[]error{ErrNotAcquired, none}}}
	}
	var o call
	o.apply(opts)
	sorted := slices.Compact(slices.Sorted(slices.Values(keys)))
	all := &Guards[T]{keys: sorted}
	start := time.Now()
	var asked []early[T]
	c, ours := l.(*Client[T])
	if ours { // another Locker has a Lock of its own
		asked = c.lockEarly(ctx, sorted, opts, start)
	}
	taken := 0
	defer func() {
		if err != nil || len(all.guards) < len(sorted) { // or a Binder has panicked
			c.unlockEarly(asked[min(taken, len(asked)):])
			err = errors.Join(err, all.unlockBehind())
		}
	}()
	for i, key := range sorted {
		each := slices.Clip(opts)
		if o.waitLimit > 0 {
			each = append(each, WaitLimit(leftOf(o.waitLimit, start)))
		}
		var e early[T]
		if i < len(asked) {
			e = asked[i]
			each = append(each, e.option)
		}
		taken = i + 1
		g, err := l.Lock(ctx, key, each...)
		if err != nil {
			return nil, err
		}
		all.guards = append(all.guards, g) // before anything fails; safeguard: all-counted
		if e.guard != nil {
			if ctx.Err() != nil { // since it was locked; else Lock has looked
				return nil, &Error{opLock, key, notAcquired(ctx, nil)}
			}
			e.next.of.Store(&g.handle) // safeguard: all-under-each
		}
		ctx = g.Context() // safeguard: all-next-under
	}
	return all, nil
}

// unlockBehind unlocks, and goes on behind the caller's back if that takes long: a store that is
// silent would make it wait for a TTL per key, which is no part of the time that the caller gave.
func (g *Guards[T]) unlockBehind() error {
	var err error
	// Each guard is counted by its Client until it is unlocked.
	if behind(func() { err = g.Unlock() }) {
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

// Unlock releases all, and returns the errors of [Guard.Unlock] joined, the last key's first. The
// requests to the store are made at once, or are one, as All's. What a Binder does at the end of a
// hold is done one after the other, last first.
func (g *Guards[T]) Unlock() error {
	if g == nil {
		return &Error{"unlock", "", ErrUnlocked}
	}
	errs, quiet, holds := make([]error, len(g.guards)), []int(nil), []*hold(nil)
	for i, guard := range slices.Backward(g.guards) {
		if guard != nil && guard.h != nil && !guard.h.hooked() {
			quiet, holds = append(quiet, i), append(holds, guard.h)
		} else {
			errs[len(errs)-1-i] = guard.Unlock()
		}
	}
	unlockTogether(holds, func(i int, store backend.Backend) {
		errs[len(errs)-1-quiet[i]] = g.guards[quiet[i]].unlock(byUnlock, store)
	})
	return errors.Join(errs...)
}
