package backendtest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var exclusiveRules = []rule{
	{
		name: "exclusive/one-holder", run: oneHolder,
		why: "Mutual exclusion is what a lock is for: a held key is refused to every other " +
			"claim, and free again after Release.",
	},
	{
		name: "exclusive/not-re-entrant", run: notReentrant,
		why: "Ownership is per acquisition, not per client: two claims of one client exclude " +
			"each other. (Two Mutexes on one" +
			" session of etcd's concurrency package both hold, etcd#22082; anything keyed by " +
			"connection or process does the same.)",
	},
	{
		name: "exclusive/race", run: raceForOne,
		why: "TryAcquire is one atomic step. Where looking and writing are two, of many who ask " +
			"at once several are granted.",
	},
	{
		name: "exclusive/refusal-changes-nothing", run: refusalChangesNothing,
		why: "ErrHeld is certainly a no: the claim is not released afterwards, so whatever a " +
			"refused attempt writes stays.",
	},
	{
		name: "exclusive/held-tells", run: heldTells,
		why: "A *HeldError says who holds and for how long at most. Without RetryAfter nobody " +
			"asks at the end of a crashed" +
			" holder's lease, which no store signals reliably (Redis: expired events come when " +
			"the key is deleted, not when it expires).",
	},
}

// covers: A12, C1
func oneHolder(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.acquire(a, c)
	e.held(b, e.claim(key))
	e.held(a, e.claim(key))
	e.release(a, c)
	e.free(b, key)
	e.free(a, key)
}

// covers: X9, G3
func notReentrant(e *env) {
	a := e.open()
	key := e.key("k")
	first := e.claim(key)
	e.acquire(a, first)
	second := e.claim(key)
	e.held(a, second)
	e.lost("Release of the refused claim", release(e.ctx, a, second))
	e.held(a, e.claim(key))
	e.release(a, first)
}

// covers: A1, C2
func raceForOne(e *env) {
	clients := []backend.Backend{e.open(), e.open(), e.open()}
	for range 8 {
		key := e.key("k")
		claims := make([]backend.Claim, 24)
		var granted, refused atomic.Int32
		var winner atomic.Int32
		for i := range claims {
			claims[i] = e.claim(key)
		}
		parallel(len(claims), func(i int) {
			_, err := clients[i%3].TryAcquire(e.ctx, claims[i])
			switch {
			case err == nil:
				granted.Add(1)
				winner.Store(int32(i))
			case errors.Is(err, backend.ErrHeld):
				refused.Add(1)
			default:
				e.Errorf("TryAcquire = %v, want a grant or ErrHeld", err)
			}
		})
		if granted.Load() > 1 {
			e.broken("%d of %d concurrent claims were granted, want 1", granted.Load(), len(claims))
			e.FailNow()
		}
		if granted.Load() != 1 || int(refused.Load()) != len(claims)-1 {
			e.Fatalf("%d of %d concurrent claims were granted, want 1", granted.Load(), len(claims))
		}
		e.release(clients[0], claims[winner.Load()])
	}
}

// covers: X11, W8
func refusalChangesNothing(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.claim(key)
	e.acquire(a, holder)
	refused := e.claim(key)
	for range 3 {
		e.held(b, refused)
	}
	if e.caps.Inspect {
		state, err := a.Inspect(e.ctx, key)
		if err != nil || len(state.Waiters) != 0 || len(state.Holders) != 1 ||
			state.Holders[0].Owner != holder.Owner {
			e.Errorf("after a refused claim Inspect = %+v, %v; want its holder alone", state, err)
		}
	}
	e.release(a, holder)
	e.free(a, key)
}

// covers: R18
func heldTells(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	c.Meta = backend.Meta{
		Service: "till \"3\"; 汉字\n", Host: "host-1.example.org", PID: 4711,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Note:        "\"why\"\t汉字 <b>", Waits: "exclusive\n/src/till.go:17\nshop~k",
	}
	g := e.acquire(a, c)
	held := e.held(b, e.claim(key))
	if held.Holder != c.Meta {
		e.Errorf("HeldError.Holder = %+v, want the holder's %+v", held.Holder, c.Meta)
	}
	if held.RetryAfter <= 0 || held.RetryAfter > e.roundedUp(g.TTL) {
		e.Errorf("HeldError.RetryAfter = %v, want above 0 and at most the lease of %v",
			held.RetryAfter, g.TTL)
	}
	if held.Token != 0 && held.Token != g.Token {
		e.Errorf("HeldError.Token = %d, want the key's last token, %d", held.Token, g.Token)
	}
	if g.TTL < c.TTL {
		e.Errorf("Grant.TTL = %v, below the %v that was asked for", g.TTL, c.TTL)
	}
}

// roundedUp is what a lease of ttl may be in a store: a lease that must not end early is given some
// time more, and one of a store that counts whole seconds may be shared, and be longer by a third.
func (e *env) roundedUp(ttl time.Duration) time.Duration {
	if e.caps.MinTTL >= time.Second {
		ttl += ttl / 3
	}
	return ttl + max(ttl/100, e.caps.MinTTL)
}
