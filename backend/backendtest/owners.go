package backendtest

import (
	"github.com/holdfast-go/holdfast/backend"
)

var queueReentrant = backend.Capabilities{Queue: true, Reentrant: true}

var ownerRules = []rule{
	{
		name: "reentrant/own-lease", run: reentrantOwnLease, needs: reentrant,
		why: "Each hold of an owner is renewed, and runs out, by itself: the process that died " +
			"must not live on in the other's" +
			" renewals, nor take its lease along.",
	},
	{
		name: "reentrant/past-the-line", run: reentrantPastTheLine, needs: queueReentrant,
		why: "An owner that holds enters again at once, whoever waits. If it had to be queued, " +
			"it would wait for those who" +
			" wait for it.",
	},
	{
		name: "reentrant/handed-over", run: reentrantHandedOver, needs: queueReentrant,
		why: "The queue serves owners as it serves others: the key is handed to the head when " +
			"the last hold is released.",
	},
	{
		name: "reentrant/leaves-its-place", run: reentrantLeavesItsPlace, needs: queueReentrant,
		why: "A claim that waits behind others enters past them once its owner holds. If its " +
			"place stayed, the key would" +
			" later be handed to a claim for which nobody waits any more.",
	},
}

// covers: A10, B15
func reentrantOwnLease(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	owner := e.prefix + "owner"
	dead, alive := e.enters(key, owner), e.enters(key, owner)
	dead.TTL = e.short
	e.acquire(a, dead)
	e.acquire(b, alive)
	for range 4 {
		e.renewed(b, alive)
		e.pause(e.short / 2)
	}
	e.await("the lease of one hold to run out", e.short+patience, func() bool {
		return a.Renew(e.ctx, dead) != nil
	})
	e.lost("Renew by the hold whose lease ran out", a.Renew(e.ctx, dead))
	e.held(a, e.enters(key, e.prefix+"other"))
	e.release(b, alive)
	e.free(a, key)
}

// covers: G3, A10, W11
func reentrantPastTheLine(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	owner := e.prefix + "owner"
	first, again := e.enters(key, owner), e.enters(key, owner)
	token := e.acquire(a, first).Token
	waiter, other := e.inLine(key), e.enters(key, e.prefix+"other")
	other.Queue, other.WaiterTTL = true, e.long
	e.stand(b, waiter, 1)
	e.stand(b, other, 2)
	for range 3 { // retries are not counted
		if g := e.acquire(b, again); g.Token != token {
			e.Errorf("entered again with token %d, want that of the first hold, %d", g.Token, token)
		}
	}
	queued := e.enters(key, owner)
	queued.Queue, queued.WaiterTTL = true, e.long
	e.acquire(a, queued)
	e.release(a, first)
	e.release(a, queued)
	e.stand(b, waiter, 1)
	e.release(b, again)
	e.turn(b, waiter)
	e.stand(b, other, 1)
	e.held(a, e.enters(key, owner)) // it holds no more
}

// covers: W6, G3
func reentrantHandedOver(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	first := e.enters(key, e.prefix+"one")
	e.acquire(a, first)
	line := []backend.Claim{
		e.enters(key, e.prefix+"two"), e.enters(key, e.prefix+"two"),
		e.enters(key, e.prefix+"three"),
	}
	for i := range line {
		line[i].Queue, line[i].WaiterTTL = true, e.long
		e.stand(b, line[i], i+1)
	}
	e.release(a, first)
	g := e.turn(b, line[0])
	if same := e.turn(b, line[1]); same.Token != g.Token {
		e.Errorf("two holds of one owner have the tokens %d and %d", g.Token, same.Token)
	}
	e.stand(b, line[2], 1)
	e.release(b, line[1])
	e.stand(b, line[2], 1)
	e.release(b, line[0])
	e.turn(b, line[2])
}

// covers: W5, W6
func reentrantLeavesItsPlace(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder, between := e.claim(key), e.inLine(key)
	first, second := e.enters(key, e.prefix+"owner"), e.enters(key, e.prefix+"owner")
	first.Queue, first.WaiterTTL = true, e.long
	second.Queue, second.WaiterTTL = true, e.long
	e.acquire(a, holder)
	for i, c := range []backend.Claim{first, between, second} {
		e.stand(b, c, i+1)
	}
	e.release(a, holder)
	e.turn(b, first)
	waits := e.heartbeat(b, second, between)
	if len(waits) > 0 && (waits[0] || !waits[1]) {
		e.Errorf("by a heartbeat a claim whose owner holds by now waits: %v, and one between: %v",
			waits[0], waits[1])
	}
	e.acquire(a, second)
	e.stand(b, between, 1)
	e.release(a, second)
	e.release(b, first)
	e.turn(b, between)
	e.release(b, between)
	e.free(a, key)
}
