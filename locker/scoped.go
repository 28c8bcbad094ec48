package locker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/backend"
)

// Scoped returns a [Binder] of values that have an end: open makes one for each hold, and closing
// ends it, once.
//
// closing runs inside Unlock, in its goroutine, after the hold has ended and before the lock is
// released or handed on; the lease is renewed meanwhile. Its error is joined to Unlock's, and a
// panic of it becomes an error. Unlock waits for it for as long as it takes.
//
// When the hold ends by a loss, by [Config.MaxHold] or by [Client.Close], closing runs at once, in
// a goroutine of its own, even while code under the lock still uses the value: such code must bear
// that, as code with a closed connection does. A later Unlock waits for it and has its error.
//
// So, of one exclusive key, no two values of a process are open at a time, whatever happens: the
// next holder's open waits until the last one's closing has returned, or fails with its own ctx.
// (A process is here all Clients of one [backend.Backend].) Of permits, open waits for what is open
// of a hold that is over, and not for the others. The next holder of another process
// waits for it after an Unlock, too. After a loss it cannot: the store grants the key when the
// lease is over, and does not know of values. It is then up to closing to be done by that time,
// for which it has what is left of the lease after the local deadline (a hundredth of the TTL and
// 3 ms, after MaxHold two thirds of the TTL as a rule).
//
// The ctx that open gets must be the one that the Binder got, or derived from it. A Binder may call
// several Scoped ones; they are closed in reverse. With nil for open or closing the Binder is nil,
// which [New] refuses.
func Scoped[T any](open Binder[T], closing func(T) error) Binder[T] {
	if open == nil || closing == nil {
		return nil
	}
	return func(ctx context.Context, info Hold) (v T, err error) {
		var none T
		of, err := holdOf(ctx, info, "Scoped")
		if err != nil {
			return none, err
		}
		r := &resource{hold: of.h, done: make(chan struct{})}
		if err := r.enter(of); err != nil {
			return none, err
		}
		opened := false
		defer func() {
			if !opened { // open failed, or panicked
				r.closed()
			}
		}()
		if v, err = open(ctx, info); err != nil {
			return none, err
		}
		opened = true
		r.closing = func() error { return closing(v) }
		if cause := of.h.atEnd(r.close); cause != nil { // it ended while open was at work
			return none, errors.Join(cause, r.close(nil, nil)) // safeguard: opened-too-late
		}
		return v, nil
	}
}

// holdOf returns the hold that a Binder of ours, who, was called for.
func holdOf(ctx context.Context, info Hold, who string) (of holdContext, err error) {
	of, ok := ctx.Value(holdKey{}).(holdContext)
	if !ok || of.h.info != info {
		err = &backend.InvalidError{
			Field:  "ctx",
			Reason: "is not that of the hold: " + who + " needs the one that the Binder got",
		}
	}
	return of, err
}

// A resource is what a hold's guard protects, from before it is opened until it is closed.
type resource struct {
	hold    *hold
	closing func() error
	done    chan struct{} // closed when it is closed
	err     error         // of closing, when done is closed
	taken   bool          // somebody closes it; guarded by resources
}

// resources are those that are open in this process, by key. They are few: one for each key that is
// held with a Scoped binder. They are the process's and not a Client's, as that is what is
// promised:
// of two Clients of one Backend, with binders of different types, one may be handed the key that
// the other has just lost, and what the other opened may still be open.
var resources = struct {
	sync.Mutex
	open map[string][]*resource
}{open: map[string][]*resource{}}

// enter waits until nothing is open that must not be beside r, and counts r as open.
//
// Safety: whoever comes here was granted the key by the store. What an exclusive claim finds open
// then is of a hold that is over, whether it knows or not, and is closed when it does; so the store
// is asked for it now. No two pass, as the look and the entry are one step under the mutex, and an
// entry is left only when closing has returned.
func (r *resource) enter(ctx holdContext) error {
	key := r.hold.lease.claim.Key
	for {
		resources.Lock()
		i := slices.IndexFunc(resources.open[key], r.excludedBy)
		if i < 0 {
			resources.open[key] = append(resources.open[key], r)
			resources.Unlock()
			return nil
		}
		other := resources.open[key][i]
		resources.Unlock()
		if l := other.hold.lease; l.holder() == other.hold {
			l.core.add()
			go func() {
				defer l.core.done()
				_ = l.check(context.Background(), other.hold)
			}()
		}
		select {
		case <-other.done: // and another may be open; safeguard: scoped-looks-again
		case <-ctx.Done():
			return fmt.Errorf("what an earlier hold protects is still open: %w", ended(ctx))
		}
	}
}

// excludedBy reports whether r must not be open beside other: as their claims must not hold
// together. Of permits those are waited for whose hold knows that it is over, by whatever ended it:
// its lease may run out while it is closed, and then the store has a permit for the next.
func (r *resource) excludedBy(other *resource) bool {
	mine, theirs := r.hold.lease, other.hold.lease
	switch {
	case mine.core.b != theirs.core.b, r.hold == other.hold: // safeguard: scoped-clients
		return false
	case mine.claim.Reentrant && theirs.claim.Reentrant:
		return mine.claim.Owner != theirs.claim.Owner
	// safeguard: scoped-modes
	case mine.claim.Mode != theirs.claim.Mode, mine.claim.Mode == backend.Exclusive:
		return true
	}
	return mine.claim.Mode == backend.Permit && other.hold.over() // safeguard: scoped-permits
}

// closed is the end of what enter began.
func (r *resource) closed() {
	key := r.hold.lease.claim.Key
	resources.Lock()
	defer resources.Unlock()
	resources.open[key] = slices.DeleteFunc(resources.open[key], func(o *resource) bool {
		return o == r
	})
	if len(resources.open[key]) == 0 {
		delete(resources.open, key)
	}
	close(r.done)
}

// close is what the end of the hold calls, however it ended. It returns when r is closed, with the
// error of closing. Only its first call runs that.
func (r *resource) close(error, *backend.Claim) error {
	resources.Lock()
	first := !r.taken
	r.taken = true
	resources.Unlock()
	if first {
		r.run()
	}
	<-r.done
	return r.err
}

// run runs closing; r is closed then, whatever becomes of it.
func (r *resource) run() {
	defer r.closed()
	defer func() {
		if p := recover(); p != nil {
			r.err = fmt.Errorf("close: panic: %v", p)
			r.hold.lease.core.cfg.Logger.Error("holdfast: closing what a guard protects panicked",
				"key", r.hold.info.Key, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if err := r.closing(); err != nil {
		r.err = fmt.Errorf("close: %w", err)
	}
}

// stillOpen is for a Client that has no more time: it names what is open of it, and waits for it no
// more.
func (c *core) stillOpen() (keys []string) {
	resources.Lock()
	var open []*resource
	for _, all := range resources.open {
		for _, r := range all {
			if r.hold.lease.core == c {
				open = append(open, r)
			}
		}
	}
	resources.Unlock()
	for _, r := range open {
		keys = append(keys, fmt.Sprintf("%q", r.hold.info.Key))
		r.hold.finish(lostBecause(ErrClosed)) // unless it has: its Unlock waits for closing
		r.hold.hookDone()
	}
	slices.Sort(keys)
	return keys
}
