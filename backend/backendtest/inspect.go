package backendtest

import (
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var inspectRules = []rule{
	{
		name: "inspect/free", run: inspectFree, needs: inspect,
		why: "A key that nobody holds has no holder, also after one has released or its " +
			"lease ran out.",
	},
	{
		name: "inspect/holder", run: inspectHolder, needs: inspect,
		why: "\"Who holds it, since when, for how long?\" is the first question when " +
			"work stands still" +
			" (redisson#2116, node-redlock#56, python-redis-lock#41).",
	},
	{
		name: "inspect/changes-nothing", run: inspectChangesNothing, needs: inspect,
		why: "Looking must not touch: it neither extends a lease, nor counts tokens, nor " +
			"creates anything.",
	},
}

func inspectFree(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.nobody(b, key)
	c := e.claim(key)
	e.acquire(a, c)
	e.release(a, c)
	e.nobody(b, key)
	brief := e.brief(key)
	e.acquire(a, brief)
	e.unheld(b, key)
	never := e.claim(key)
	e.lost("Release", release(e.ctx, a, never)) // leaves a tombstone, which holds nothing
	e.nobody(b, key)
}

func inspectHolder(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	c.Meta.Since = time.Now().UTC().Truncate(time.Millisecond)
	g := e.acquire(a, c)
	state, err := b.Inspect(e.ctx, key)
	if err != nil || len(state.Holders) != 1 {
		e.Fatalf("Inspect = %+v, %v; want one holder", state, err)
	}
	h := state.Holders[0]
	if h.Owner != c.Owner || h.Mode != c.Mode {
		e.Errorf("Inspect says that %q holds in mode %v, want %q, %v", h.Owner, h.Mode, c.Owner,
			c.Mode)
	}
	if h.TTL <= 0 || h.TTL > e.roundedUp(g.TTL) {
		e.Errorf("Inspect says that %v remain of a lease of %v", h.TTL, g.TTL)
	}
	if !h.Meta.Since.Equal(c.Meta.Since) {
		e.Errorf("Meta.Since = %v, want %v", h.Meta.Since, c.Meta.Since)
	}
	h.Meta.Since = c.Meta.Since
	if h.Meta != c.Meta {
		e.Errorf("Meta = %+v, want %+v", h.Meta, c.Meta)
	}
	if len(state.Waiters) != 0 {
		e.Errorf("waiters %+v, though nobody asked", state.Waiters)
	}
}

// covers: R17
func inspectChangesNothing(e *env) {
	a, b := e.open(), e.open()
	fresh := e.key("fresh")
	e.nobody(b, fresh)
	e.lost("Renew of a key that was only looked at", a.Renew(e.ctx, e.claim(fresh)))
	key := e.key("k")
	c := e.brief(key)
	g := e.acquire(a, c)
	e.forget(b, c)
	next := e.claim(key)
	e.forget(b, next)
	e.await("a lease to run out while it is looked at", 4*g.TTL+patience, func() bool {
		if _, err := b.Inspect(e.ctx, key); err != nil {
			e.Errorf("Inspect = %v", err)
			return true
		}
		_, err := b.TryAcquire(e.ctx, next)
		return err == nil
	})
}

// unheld waits until nobody holds key, by looking alone.
func (e *env) unheld(b backend.Backend, key string) {
	e.Helper()
	e.await("a lease to run out, as Inspect sees it", 4*e.short+patience, func() bool {
		state, err := b.Inspect(e.ctx, key)
		if err != nil {
			e.Errorf("Inspect = %v", err)
		}
		return len(state.Holders) == 0
	})
}

// nobody must hold key.
func (e *env) nobody(b backend.Backend, key string) {
	e.Helper()
	state, err := b.Inspect(e.ctx, key)
	if err != nil || len(state.Holders) != 0 || len(state.Waiters) != 0 {
		e.Errorf("Inspect = %+v, %v; want nobody", state, err)
	}
}
