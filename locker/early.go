package locker

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A turn is the context between two keys of All, of which the latter is locked before its turn: at
// first the one that All was called with, and from that turn on the one of the former's hold.
type turn struct {
	context.Context
	of atomic.Pointer[handle]
}

func (t *turn) now() context.Context {
	if h := t.of.Load(); h != nil {
		return holdContext{h}
	}
	return t.Context
}

func (t *turn) Done() <-chan struct{} { return t.now().Done() }
func (t *turn) Err() error            { return t.now().Err() }
func (t *turn) Value(key any) any     { return t.now().Value(key) }

// errOurs is why a key of All is not locked before its turn that its own process has.
var errOurs = fmt.Errorf("held or waited for by this process: %w", backend.ErrHeld)

// An early is a key of All that was asked for before its turn.
type early[T any] struct {
	guard    *Guard[T] // not bound yet; nil: the key is to be locked in its turn
	next     *turn
	tookOver uint64 // of a hold that was given back
}

// option has Lock begin with it.
func (e *early[T]) option(o *call) {
	o.tookOver = e.tookOver
	if e.guard != nil {
		o.early = e.guard
	}
}

// lockEarly asks for all keys at once, where the store can by one request for 64 of them, and
// elsewhere by one for each: so those that are free take one round trip, where one after the other
// takes one for each. It keeps what comes before the first that is not free, and gives back the
// rest.
//
// Safety: whoever waits for a key holds only keys before it, in the order that everybody takes them
// in. So nobody waits for whoever waits for him: an attempt before the key's turn takes no place in
// a queue and does not wait, and what it was granted behind a key that is not free is released
// before that one is waited for (TestAllGivesBackWhatIsBehind). If that release gets no answer, it
// goes on as any other, and the lease ends by itself. An attempt without an answer is withdrawn, as
// any other.
func (c *Client[T]) lockEarly(ctx context.Context, keys []string, opts []Option,
	began time.Time,
) []early[T] {
	o := c.core.options(opLock, opts)
	if o.err != nil || len(keys) == 1 {
		return nil // Lock tells
	}
	o.try = true
	runtime.Callers(earlySkip, o.site[:]) // here, as each is asked for in a goroutine of its own
	all := make([]early[T], len(keys))
	for i := range all {
		all[i].next = &turn{Context: ctx}
	}
	got := 0
	for some := range slices.Chunk(all, maxWorkers) {
		b := newBatch(c.core.b, len(some), sendAttempts)
		first := got
		atOnce(len(some), func(i int) {
			at, under := first+i, ctx
			if at > 0 {
				under = all[at-1].next
			}
			defer b.parts[i].skip()
			one := o
			one.store = &b.parts[i]
			one.waitLimit = leftOf(o.waitLimit, began) // safeguard: all-in-its-limit
			some[i].guard = c.tryEarly(under, keys[at], &one)
		})
		for got < len(all) && all[got].guard != nil {
			got++
		}
		if got < first+len(some) {
			break
		}
	}
	c.unlockEarly(all[got:]) // safeguard: all-given-back
	return all
}

// tryEarly asks for one key, unless it is likely to be held. It returns nil if it is not to be had
// now: Lock asks again, and tells.
func (c *Client[T]) tryEarly(ctx context.Context, key string, o *call) *Guard[T] {
	if c.core.holdTimes.of(backend.Namespaced(c.core.cfg.Namespace, key)).contendedLately() {
		return nil
	}
	g := &Guard[T]{}
	if c.core.acquire(ctx, opLock, key, o, &g.handle) != nil {
		return nil
	}
	return g
}

// earlySkip is how many frames are between lockEarly and the caller of All.
const earlySkip = 3

// unlockEarly unlocks what All has no use for, all at once, and goes on behind the caller if that
// takes long.
func (c *Client[T]) unlockEarly(all []early[T]) {
	var held []*hold
	for i := range all {
		if g := all[i].guard; g != nil {
			held = append(held, g.h)
			// Which the store tells once. safeguard: all-took-over
			all[i].tookOver = g.h.info.TookOver
		}
		all[i].guard = nil
	}
	if len(held) > 0 {
		c.core.add()
		behind(func() {
			defer c.core.done()
			unlockTogether(held, func(i int, store backend.Backend) {
				_ = held[i].unlock(byUnlock, store)
			})
		})
	}
}

// unlockTogether unlocks holds, all at once, by unlock with a part of a batch in the place of the
// store; and those of another Client than the first, which a Locker of the user's may have,
// without.
func unlockTogether(holds []*hold, unlock func(i int, store backend.Backend)) {
	for first := 0; first < len(holds); first += maxWorkers {
		c := holds[first].lease.core
		b := newBatch(c.b, min(len(holds)-first, maxWorkers), sendReleases)
		atOnce(len(b.parts), func(i int) {
			p := &b.parts[i]
			defer p.skip()
			if holds[first+i].lease.core != c { // safeguard: all-own-store
				p.skip()
				unlock(first+i, nil)
				return
			}
			unlock(first+i, p)
		})
	}
}

// leftOf is what is left of a limit that began then, at least a moment, in which it runs out; 0 is
// no limit.
func leftOf(limit time.Duration, began time.Time) time.Duration {
	if limit <= 0 {
		return limit
	}
	return max(limit-time.Since(began), 1)
}

// atOnce calls f with 0 to n-1, each in a goroutine of its own but for the last.
func atOnce(n int, f func(i int)) {
	var others sync.WaitGroup
	for i := range n - 1 {
		others.Go(func() {
			growStack()
			f(i)
		})
	}
	if n > 0 {
		f(n - 1)
	}
	others.Wait()
}

// growStack has the stack of a new goroutine grow once, while nothing is on it, to what a lock and
// an unlock need: else it grows twice, and each time all frames are looked at, which is a third of
// what many keys at once cost.
//
//go:noinline
func growStack() {
	var room [6 << 10]byte
	runtime.KeepAlive(&room)
}
