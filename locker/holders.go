package locker

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// heldAhead is how many changes a caller of Holders may be behind.
const heldAhead = 256

// lookEvery is how often Holders looks where the store tells of no changes.
const lookEvery = time.Second

// Holders tells who holds key: for those who follow who leads, and for people and tools. It is no
// proof of ownership: what it says has been so, and whoever acts on it may act when another holds
// already.
//
// The first element is how it is now, at once; then comes one for each change of who holds, in
// order. State.Holders has several for a shared lock or a semaphore, and none while the key is
// free; State.Waiters is as it was then, and no element comes for waiters alone. A lease that a
// process hands on among its goroutines is one hold, and has its first token.
//
// The store tells of changes (backend.Capabilities.Observe): no hold that lasts for longer than two
// round trips to it is left out, however many there are, as long as the caller's loop is not over
// 256 elements behind. Where it cannot, or its user may not, Holders looks when the store signals
// that the key may be free, and each second: holds that begin and end between two looks are not
// seen. That is so on a Redis behind a proxy without RESP3 or CLIENT TRACKING, and where an ACL
// forbids it.
//
// An error that says that the store gives no answer comes once, and the state follows when it
// answers again: so a loop may go on after an error. It ends when the caller leaves it, or after an
// error that is the last: that of ctx, with its cause; [ErrClosed]; and a refusal
// ([backend.Refused]). Every error is an *[Error]. Holders may be called concurrently; a call has a
// goroutine, and a connection to the store or a watch in it, until its loop ends.
func (c *Client[T]) Holders(ctx context.Context, key string) iter.Seq2[backend.State, error] {
	return func(yield func(backend.State, error) bool) {
		for h := range c.core.holders(ctx, backend.Namespaced(c.core.cfg.Namespace, key)) {
			if h.err != nil {
				h.err = &Error{"holders", key, h.err}
			}
			if !yield(h.state, h.err) {
				return
			}
		}
	}
}

// held is an element of Holders.
type held struct {
	state backend.State
	err   error
}

// holders is Holders, by a goroutine that goes on observing while the caller is at work. Close
// waits for that and not for the caller.
func (c *core) holders(ctx context.Context, key string) iter.Seq[held] {
	return func(yield func(held) bool) {
		if !c.enter() {
			yield(held{err: ErrClosed})
			return
		}
		observing, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(c.closing, cancel)
		elements := make(chan held, heldAhead)
		go func() {
			defer c.done()
			defer close(elements)
			c.observeHolders(observing, key, func(h held) bool {
				select {
				case elements <- h:
					return true
				case <-observing.Done():
					return false
				}
			})
		}()
		defer func() {
			stop()
			cancel()
			for range elements { // until it is closed
			}
		}()
		for h := range elements {
			if observing.Err() != nil && h.err != nil {
				break // it says so in other words
			}
			if !yield(h) {
				return
			}
		}
		switch {
		case ctx.Err() != nil:
			yield(held{err: ended(ctx)})
		case observing.Err() != nil:
			yield(held{err: ErrClosed})
		}
	}
}

// observeHolders calls tell with what Holders yields, until it returns false.
func (c *core) observeHolders(ctx context.Context, key string, tell func(held) bool) {
	var last held
	first := true
	changed := func(state backend.State, err error) bool {
		h := held{state, err}
		same := !first && (last.err == nil) == (err == nil) && last.state.SameHolders(state)
		if last, first = h, false; same && !backend.Refused(err) {
			return true
		}
		return tell(h)
	}
	for state, err := range c.b.Observe(ctx, key) {
		if errors.Is(err, errors.ErrUnsupported) {
			c.lookAtHolders(ctx, key, changed)
			return
		}
		if !changed(state, err) {
			return
		}
	}
}

// lookAtHolders looks again and again, for a store that tells of no changes.
func (c *core) lookAtHolders(ctx context.Context, key string,
	changed func(backend.State, error) bool,
) {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	claim := backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: c.cfg.TTL}
	wakes, err := c.b.Watch(watching, claim)
	if err != nil {
		wakes = nil
	}
	look := func(ctx context.Context) (backend.State, error) { return c.b.Inspect(ctx, key) }
	if backend.ObserveBy(ctx, lookEvery, wakes, look, changed) { // no wake-ups any more
		backend.ObserveBy(ctx, lookEvery, (<-chan struct{})(nil), look, changed)
	}
}
