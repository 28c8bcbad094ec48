package backendtest

import "github.com/holdfast-go/holdfast/backend"

var tokenRules = []rule{
	{
		name: "token/rises", run: tokenRises, needs: fencing,
		why: "A resource refuses a token below the highest it has seen. A token that does not " +
			"rise from grant to grant, across" +
			" clients too, lets a paused holder write over its successor's work, or locks the " +
			"rightful holder out.",
	},
	{
		name: "token/fast", run: tokenFast, needs: fencing,
		why: "Grants may come faster than the store's clock ticks: a token made of the time " +
			"alone repeats.",
	},
	{
		name: "token/across-expiry", run: tokenAcrossExpiry, needs: fencing,
		why: "The holder whose lease ran out is the one that fencing is for: its successor's " +
			"token must be above its own.",
	},
	{
		name: "token/across-drop", run: tokenAcrossDrop, needs: fencing, hook: hasDrop,
		why: "A counter that starts again at 1 after a flush, an eviction or a deleted key locks " +
			"every new holder out of" +
			" the resource, or lets old ones in.",
	},
	{
		name: "token/agrees", run: tokenAgrees, needs: backend.Capabilities{
			Fencing: true,
			Inspect: true,
		},
		why: "People look tokens up to find out who did what. What Inspect shows is " +
			"what was granted.",
	},
}

// covers: K1, K8
func tokenRises(e *env) {
	clients := []backend.Backend{e.open(), e.open()}
	key := e.key("k")
	var last uint64
	for i := range 20 {
		c := e.claim(key)
		c.NoneInFlight = i%3 == 0
		last = e.above(last, e.acquire(clients[i%2], c))
		e.held(clients[1], e.claim(key)) // a refused claim must not disturb the counting
		if i%4 == 0 {
			e.renewed(clients[0], c)
		}
		e.release(clients[0], c)
	}
}

// covers: K1
func tokenFast(e *env) {
	a := e.open()
	key := e.key("k")
	var last uint64
	for range 200 {
		c := e.claim(key)
		c.NoneInFlight = true
		g, err := a.TryAcquire(e.ctx, c)
		if err != nil {
			e.Fatalf("TryAcquire = %v", err)
		}
		last = e.above(last, g)
		e.release(a, c)
	}
}

// covers: K1, B11
func tokenAcrossExpiry(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	old := e.acquire(a, e.brief(key))
	e.above(old.Token, e.takeOver(b, e.claim(key)))
}

// covers: K1, R8
func tokenAcrossDrop(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	var last uint64
	for range 3 {
		last = e.above(last, e.acquire(a, e.claim(key)))
		e.h.Drop(e, key)
	}
	e.above(last, e.acquire(b, e.claim(key)))
}

func tokenAgrees(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	g := e.acquire(a, c)
	state, err := b.Inspect(e.ctx, key)
	if err != nil || len(state.Holders) != 1 || state.Holders[0].Token != g.Token ||
		state.Token != g.Token {
		e.Errorf("Inspect = %+v, %v; want the token %d that was granted", state, err, g.Token)
	}
}

// above must be granted a token above last, and returns it.
func (e *env) above(last uint64, g backend.Grant) uint64 {
	e.Helper()
	if g.Token <= last {
		e.broken("granted token %d after %d: tokens must rise strictly", g.Token, last)
		e.FailNow()
	}
	return g.Token
}
