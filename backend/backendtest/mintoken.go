package backendtest

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var minToken = backend.Capabilities{MinToken: true, Fencing: true}

var minTokenRules = []rule{
	{
		name: "min-token/granted", run: minTokenGranted, needs: minToken,
		why: "A quorum asks all its nodes for one token. A node that grants a lower one costs " +
			"every lock a second round trip.",
	},
	{
		name: "min-token/never-lowers", run: minTokenNeverLowers, needs: minToken,
		why: "A claimant whose clock is behind asks for a token that was given long ago: two " +
			"holders with one token.",
	},
	{
		name: "min-token/clamped", run: minTokenClamped, needs: minToken,
		why: "A claimant whose clock is years ahead must not push the key's tokens there: a " +
			"store that forgets its counters" +
			" goes on from its own clock, below every token that it gave before.",
	},
	{
		name: "min-token/written-back", run: minTokenWrittenBack, needs: minToken,
		why: "The token of a quorum's hold is the highest that a node gave. Unless the others " +
			"remember it, the next holder" +
			" of a majority without that node gets a lower one (16 of 100 simulated schedules).",
	},
	{
		name: "min-token/repeat", run: minTokenRepeat, needs: minToken,
		why: "After a token was raised, a repeat of the claim must not bring the old one back: " +
			"one hold would have two.",
	},
	{
		name: "min-token/one-owner", run: minTokenOneOwner,
		needs: backend.Capabilities{MinToken: true, Fencing: true, Reentrant: true},
		why: "The holds of an owner have one token. If it is raised for one of them, whatever " +
			"enters later must not be told a lower one.",
	},
	{
		name: "min-token/by-another", run: minTokenByAnother, needs: minToken,
		why: "Only who holds may raise the token. From anybody else, and after the end, it is a " +
			"denial of service, or worse:" +
			" the proof that nobody was granted in between is missing.",
	},
	{
		name: "min-token/reserved", run: minTokenReserved, needs: minToken,
		why: "The tokens that a hold has reserved begin at its own. If its own is raised, or " +
			"granted for a minimum, they rise" +
			" with it, or the next holder gets one of them.",
	},
	{
		name: "min-token/handed-over", run: minTokenHandedOver,
		needs: backend.Capabilities{MinToken: true, Fencing: true, Queue: true, Watch: true},
		why: "A token may be raised while others wait. Where a place in the queue has a token of " +
			"its own, the next holder's" +
			" would be below that of the hold before.",
	},
	{
		name: "min-token/limit", run: minTokenLimit, needs: minToken,
		why: "A token near the end of its type ends a key for ever: nothing can be above it.",
	},
}

// ahead is a token that the store's clock has not reached, and that a claim with a long lease may
// ask for. The store's clock is taken to be near the test's.
func (e *env) ahead() uint64 { return backend.MinTokenLimit(time.Now(), e.long/4) }

// covers: K3
func minTokenGranted(e *env) {
	a := e.open()
	c := e.claim(e.key("k"))
	c.MinToken = e.ahead()
	g := e.acquire(a, c)
	if g.Token < c.MinToken {
		e.Errorf("granted token %d for a minimum token of %d", g.Token, c.MinToken)
	}
	e.release(a, c)
	e.above(g.Token, e.acquire(a, e.claim(c.Key)))
}

// covers: K3
func minTokenNeverLowers(e *env) {
	a, b := e.open(), e.open()
	first := e.claim(e.key("k"))
	g := e.acquire(a, first)
	e.release(a, first)
	for _, least := range []uint64{1, g.Token} {
		c := e.claim(first.Key)
		c.MinToken = least
		next := e.acquire(b, c)
		e.above(g.Token, next)
		below := c
		below.MinToken = 1
		e.renewed(b, below)
		e.release(b, c)
		g = next
	}
	e.above(g.Token, e.acquire(a, e.claim(first.Key)))
}

// covers: K3, D1
func minTokenClamped(e *env) {
	a := e.open()
	c := e.claim(e.key("k"))
	c.MinToken = backend.MaxMinToken
	g := e.acquire(a, c)
	if most := backend.MinTokenLimit(time.Now().Add(time.Hour), c.TTL); g.Token > most {
		e.Errorf("a minimum token far in the future was granted as token %d, want at most the "+
			"store's clock and a quarter of the TTL", g.Token)
	}
}

// covers: K3
func minTokenWrittenBack(e *env) {
	a, b := e.open(), e.open()
	for _, mode := range []backend.Mode{backend.Exclusive, backend.Shared} {
		if mode == backend.Shared && !e.caps.Shared {
			continue
		}
		c := e.claim(e.key("k" + mode.String()))
		c.Mode = mode
		e.acquire(a, c)
		token := e.ahead() + 1<<20 // beyond what may be wished for as well: a holder is believed
		e.raise(a, c, token)
		e.release(a, c)
		e.above(token, e.acquire(b, e.claim(c.Key)))
	}
	brief := e.brief(e.key("over"))
	e.acquire(a, brief)
	token := e.ahead()
	e.raise(a, brief, token)
	e.above(token, e.takeOver(b, e.claim(brief.Key)))
}

// covers: K3, A2
func minTokenRepeat(e *env) {
	a, b := e.open(), e.open()
	c := e.claim(e.key("k"))
	g := e.acquire(a, c)
	e.raise(a, c, g.Token+10)
	e.raise(a, c, g.Token+5) // late: a token that was raised stays
	for _, c.MinToken = range []uint64{0, g.Token + 20} {
		if again := e.acquire(b, c); again.Token != g.Token+10 {
			e.broken("a repeat with a minimum token of %d after the token was raised to "+
				"%d = token %d", c.MinToken, g.Token+10, again.Token)
		}
	}
	if e.caps.Inspect {
		state, err := a.Inspect(e.ctx, c.Key)
		if err != nil || len(state.Holders) != 1 || state.Holders[0].Token != g.Token+10 ||
			state.Token != g.Token+10 {
			e.Errorf("Inspect = %+v, %v; want the token as it was raised, %d", state, err,
				g.Token+10)
		}
	}
}

// covers: K3, A10
func minTokenOneOwner(e *env) {
	a, b := e.open(), e.open()
	key, owner := e.key("k"), e.prefix+"owner"
	first, second, third := e.enters(key, owner), e.enters(key, owner), e.enters(key, owner)
	e.acquire(a, first)
	e.acquire(b, second)
	token := e.ahead() + 1<<20
	e.raise(b, second, token)
	if g := e.acquire(a, third); g.Token < token {
		e.broken("entered again with token %d, after one hold's was raised to %d", g.Token, token)
	}
	e.release(b, second)
	e.release(a, third)
	e.release(a, first)
	e.above(token, e.acquire(a, e.claim(key)))
}

// covers: K3, B4
func minTokenByAnother(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	far := e.ahead() + 1<<40
	other := e.claim(key)
	other.MinToken = far
	e.lost("Renew with a minimum token of a claim that was never granted", a.Renew(e.ctx, other))
	holder := e.claim(key)
	e.acquire(a, holder)
	e.lost("Renew with a minimum token of a claim that does not hold", b.Renew(e.ctx, other))
	e.release(a, holder)
	late := holder
	late.MinToken = far
	e.lost("Renew with a minimum token after the release", a.Renew(e.ctx, late))
	if g := e.acquire(b, e.claim(key)); g.Token >= far {
		e.Errorf("granted token %d: somebody who did not hold has raised it", g.Token)
	}
}

// covers: K7
func minTokenReserved(e *env) {
	a := e.open()
	c := e.claim(e.key("k"))
	c.Reserve = 5
	g := e.acquire(a, c)
	if g.Reserved < 2 {
		e.Logf("only %d tokens reserved", g.Reserved)
	}
	token := g.Token + 2 // among those that it has
	e.raise(a, c, token)
	e.release(a, c)
	e.above(token+uint64(max(g.Reserved, 1))-1, e.acquire(a, e.claim(c.Key)))

	c = e.claim(e.key("granted"))
	c.Reserve, c.MinToken = 5, e.ahead()
	g = e.acquire(a, c)
	e.release(a, c)
	e.above(g.Token+uint64(max(g.Reserved, 1))-1, e.acquire(a, e.claim(c.Key)))
}

// covers: K3, W6
func minTokenHandedOver(e *env) {
	a, b := e.open(), e.open()
	for _, watched := range []bool{false, true} {
		holder := e.claim(e.key(fmt.Sprint(watched)))
		waiter, second := e.inLine(holder.Key), e.inLine(holder.Key)
		e.acquire(a, holder)
		var wake <-chan backend.Wake
		if watched {
			wake, _ = e.watch(b, waiter)
		}
		e.stand(b, waiter, 1)
		token := e.ahead() + 1<<20
		e.raise(a, holder, token)
		told := e.stand(b, second, 2).Token
		if told < token {
			e.Errorf("HeldError.Token = %d, below the token %d that was granted before", told,
				token)
		}
		e.release(a, holder)
		if watched {
			select {
			case w := <-wake:
				if w.Granted {
					e.above(token, w.Grant)
				}
			case <-time.After(e.long):
				e.Fatalf("the claim that was let in was not woken")
			}
		}
		g := e.turn(b, waiter)
		token = e.above(token, g)
		if again := e.turn(a, waiter); again.Token != g.Token {
			e.broken("a repeat = token %d after %d", again.Token, g.Token)
		}
		e.release(b, waiter)
		e.above(max(told, token), e.turn(b, second))
	}
}

// covers: I2, K8
func minTokenLimit(e *env) {
	a := e.open()
	c := e.claim(e.key("k"))
	c.MinToken = backend.MaxMinToken + 1
	_, err := a.TryAcquire(e.ctx, c)
	e.is("TryAcquire with a minimum token over the limit", err, backend.ErrInvalid)
	c.MinToken = 0
	e.acquire(a, c)
	c.MinToken = backend.MaxMinToken + 1
	e.is("Renew with a minimum token over the limit", a.Renew(e.ctx, c), backend.ErrInvalid)
}

// raise must renew c with a minimum token.
func (e *env) raise(b backend.Backend, c backend.Claim, least uint64) {
	e.Helper()
	c.MinToken = least
	e.renewed(b, c)
}
