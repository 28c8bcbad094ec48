package locker

import (
	"context"
	"reflect"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// PerKey returns a [Binder] of a value for each key, which nobody has to make safe for concurrent
// use: open makes it when the key is first locked, and the later holds of the key get the same one,
// one after the other, until [Client.Close]. It is for what a process keeps for itself: a map, a
// cache, a handle. Other processes have values of their own, and so have other Clients; what
// processes share is in a [Store], or in whatever the lock stands for.
//
// A value goes on to the next hold by an Unlock alone. After a hold that ended in another way (it
// was lost, it was ended by [Config.MaxHold], or its Unlock found that it had been lost), the next
// one gets a new value, as code under the old one may still be using it. So open may be called for
// a key while an earlier call for it, of a hold that is over, has not returned. A value that is not
// kept any longer is left to the garbage collector and not closed: use [Scoped] for one that has to
// be.
//
// If open fails, Lock fails with its error, and nothing is kept. A call with [Shared], [Permit] or
// [Reentrant], under which several hold, fails with a *[backend.InvalidError] before anything is
// written, and so does [Client.Adopt]. A Binder of your own may call one that PerKey made, with the
// ctx and the Hold that it got; such a call is then refused after the grant, and the lock released.
//
// With nil for open or a negative [PerKeyIdle] the Binder is nil, which [New] refuses.
//
//go:noinline
func PerKey[T any](open func(key string) (T, error), opts ...PerKeyOption) Binder[T] {
	p := &keeper{}
	for _, opt := range opts {
		opt(p)
	}
	if open == nil || p.idle < 0 {
		return nil
	}
	return func(ctx context.Context, info Hold) (v T, err error) {
		of, err := holdOf(ctx, info, "PerKey")
		if err != nil {
			return v, err
		}
		h := of.h
		if err := onlyOne("PerKey", h.lease.claim.Mode, h.lease.claim.Reentrant); err != nil {
			return v, err
		}
		k := h.take(p)
		if k == nil {
			if v, err = open(info.Key); err != nil {
				return v, err
			}
			k = &kept{from: p, value: v}
		}
		if cause := h.atEnd(h.keep(k)); cause != nil { // it ended while open was at work
			var none T
			return none, cause
		}
		v, _ = k.value.(T) // not so for a T that is an interface, and nil in it
		return v, nil
	}
}

// A PerKeyOption adjusts [PerKey].
type PerKeyOption func(*keeper)

// PerKeyIdle drops a value that nobody has had for d. Zero: it is kept until Close.
func PerKeyIdle(d time.Duration) PerKeyOption { return func(p *keeper) { p.idle = d } }

// A keeper is one use of PerKey.
type keeper struct{ idle time.Duration }

// exclusiveOnly reports whether bind was made by PerKey, so that locks that several hold can be
// refused before they are asked for. All that PerKey makes for one T is one function, with
// variables of its own. Were one not recognized, it would refuse when it is called.
func exclusiveOnly[T any](bind Binder[T]) bool {
	one := PerKey(func(string) (v T, err error) { return v, nil })
	return reflect.ValueOf(bind).Pointer() == reflect.ValueOf(one).Pointer()
}

// A kept is a value of PerKey. One hold has it, or it is free, and the Client has it.
//
// Safety: a hold takes a value out of the free ones in one step under core.mu. Only its own Unlock
// puts it back: after its caller has said that it uses it no more, and before the lease is handed
// on or released, so that the next hold finds it. So two never have it, whatever the store answers
// and whoever believes what. A hold that ends in another way, or never, does not put it back: the
// next finds none, and opens another. If Unlock comes later, it does not put the old one in the
// place of that.
type kept struct {
	from  *keeper
	value any
	timer *time.Timer // drops it while it is free; nil without PerKeyIdle
}

// A keptKey is what a free value is found by.
type keptKey struct {
	from *keeper
	key  string
}

// take returns the free value for h, which is nobody else's from then on, or nil.
func (h *hold) take(p *keeper) *kept {
	c, key := h.lease.core, keptKey{p, h.info.Key}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.free[key]
	delete(c.free, key) // safeguard: taken-is-not-free
	if k != nil && k.timer != nil {
		k.timer.Stop() // if it has fired, it finds the old one gone
		k = &kept{from: p, value: k.value}
	}
	return k
}

// keep returns what the end of the hold does with k: an Unlock puts it back, unless a renewal that
// was under way then told of a loss; a loss that the release tells of drops it again.
func (h *hold) keep(k *kept) endHook {
	c, key := h.lease.core, keptKey{k.from, h.info.Key}
	return func(cause error, claim *backend.Claim) error {
		switch {
		case cause != nil:
			c.dropFree(key, k)
		case claim != nil && h.lease.lost() == nil: // safeguard: kept-after-loss
			c.putBack(key, k)
		}
		return nil
	}
}

// putBack makes a value free.
func (c *core) putBack(key keptKey, k *kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing.Err() != nil {
		return
	}
	if c.free == nil {
		c.free = map[keptKey]*kept{}
	}
	c.free[key] = k
	if k.from.idle > 0 {
		k.timer = time.AfterFunc(k.from.idle, func() { c.dropFree(key, k) })
	}
}

// dropFree drops a value if it is free. One that was taken meanwhile stays with the hold that has
// it.
func (c *core) dropFree(key keptKey, k *kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.free[key] == k {
		delete(c.free, key)
	}
}
