package locker

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

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

// An early is a key that All has locked before its turn.
type early[T any] struct {
	guard *Guard[T] // not bound yet
	next  *turn
}

// lockEarly locks the first of keys that are free, each by one request, and all of these at once: so it takes
// one round trip, where one after the other takes one for each. What it got behind the first that is not free
// is given back.
//
// Safety: whoever waits for a key holds only keys before it, in the order that everybody takes them in. So nobody
// waits for whoever waits for him: an attempt before the key's turn takes no place in a queue and does not
// wait, and what it was granted behind a key that is not free is released before that one is waited
// for (TestAllGivesBackWhatIsBehind). If that release gets no answer, it goes on as any other, and the lease ends by
// itself.
func (c *Client[T]) lockEarly(ctx context.Context, keys []string, opts []Option) (got []early[T]) {
	o := c.core.options(opLock, opts)
	if o.err != nil || len(keys) == 1 {
		return nil // Lock tells
	}
	var (
		requests sync.WaitGroup
		places   = make(chan struct{}, maxWorkers)
		all      []early[T]
		refused  atomic.Bool
		under    = ctx
	)
	o.try = true
	for _, key := range keys {
		places <- struct{}{}
		if refused.Load() || c.core.holdTimes.of(backend.Namespaced(c.core.cfg.Namespace, key)).contendedLately() {
			break
		}
		e := early[T]{&Guard[T]{}, &turn{Context: ctx}}
		one, parent := o, under
		requests.Go(func() {
			if c.core.acquire(parent, opLock, key, &one, &e.guard.handle) != nil { // Lock asks again, and tells
				refused.Store(true)
			}
			<-places
		})
		all, under = append(all, e), e.next
	}
	requests.Wait()
	for len(got) < len(all) && all[len(got)].guard.h != nil {
		got = all[:len(got)+1]
	}
	c.giveBack(all[len(got):]) // safeguard: all-given-back
	var at site
	runtime.Callers(earlySkip, at[:])
	for _, e := range got {
		e.guard.h.setSite(at)
	}
	return got
}

// earlySkip is how many frames are between lockEarly and the caller of All.
const earlySkip = 3

// giveBack releases what All has no use for, all at once, and goes on behind the caller if that takes long.
func (c *Client[T]) giveBack(all []early[T]) {
	if len(all) == 0 {
		return
	}
	behind(func() {
		var released sync.WaitGroup
		places := make(chan struct{}, maxWorkers)
		for _, e := range all {
			if h := e.guard.h; h != nil {
				places <- struct{}{}
				released.Go(func() {
					c.core.unlockUnseen(h)
					<-places
				})
			}
		}
		released.Wait()
	})
}
