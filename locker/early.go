package locker

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A turn is the context between two keys of All, of which the latter is locked before its turn: at first the one that
// All was called with, and from that turn on the one of the former's hold.
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

// lockEarly asks for all keys at once, each by one request: so those that are free take one round trip, where one after
// the other takes one for each. It keeps what comes before the first that is not free, and gives back the rest.
//
// Safety: whoever waits for a key holds only keys before it, in the order that everybody takes them in. So nobody
// waits for whoever waits for him: an attempt before the key's turn takes no place in a queue and does not
// wait, and what it was granted behind a key that is not free is released before that one is waited
// for (TestAllGivesBackWhatIsBehind). If that release gets no answer, it goes on as any other, and the lease ends by
// itself. An attempt without an answer is withdrawn, as any other.
func (c *Client[T]) lockEarly(ctx context.Context, keys []string, opts []Option, began time.Time) []early[T] {
	o := c.core.options(opLock, opts)
	if o.err != nil || len(keys) == 1 {
		return nil // Lock tells
	}
	all := make([]early[T], len(keys))
	for i := range all {
		all[i].next = &turn{Context: ctx}
	}
	atOnce(len(keys), func(i int) bool {
		if c.core.holdTimes.of(backend.Namespaced(c.core.cfg.Namespace, keys[i])).contendedLately() {
			return false
		}
		one, under := o, ctx
		one.try = true
		one.waitLimit = leftOf(o.waitLimit, began) // safeguard: all-in-its-limit
		if i > 0 {
			under = all[i-1].next
		}
		g := &Guard[T]{}
		if c.core.acquire(under, opLock, keys[i], &one, &g.handle) != nil { // Lock asks again, and tells
			return false
		}
		all[i].guard = g
		return true
	})
	got := 0
	for got < len(all) && all[got].guard != nil {
		got++
	}
	c.giveBack(all[got:]) // safeguard: all-given-back
	var at site
	runtime.Callers(earlySkip, at[:])
	for _, e := range all[:got] {
		e.guard.h.setSite(at)
	}
	return all
}

// earlySkip is how many frames are between lockEarly and the caller of All.
const earlySkip = 3

// giveBack unlocks what All has no use for, all at once, and goes on behind the caller if that takes long.
func (c *Client[T]) giveBack(all []early[T]) {
	var held []*hold
	for i := range all {
		if g := all[i].guard; g != nil {
			held = append(held, g.h)
			all[i].tookOver = g.h.info.TookOver // which the store tells once; safeguard: all-took-over
		}
		all[i].guard = nil
	}
	if len(held) > 0 {
		behind(func() {
			atOnce(len(held), func(i int) bool { c.core.unlockUnseen(held[i]); return true })
		})
	}
}

// leftOf is what is left of a limit that began then, at least a moment, in which it runs out; 0 is no limit.
func leftOf(limit time.Duration, began time.Time) time.Duration {
	if limit <= 0 {
		return limit
	}
	return max(limit-time.Since(began), 1)
}

// atOnce calls f with 0 to n-1, maxWorkers of them at a time, and begins no other when one has returned false.
func atOnce(n int, f func(i int) bool) {
	var next atomic.Int64
	var stopped atomic.Bool
	work := func() {
		for !stopped.Load() {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			if !f(i) {
				stopped.Store(true)
			}
		}
	}
	var others sync.WaitGroup
	for range min(n, maxWorkers) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
}
