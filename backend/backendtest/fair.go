package backendtest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var fairRules = []rule{
	{
		name: "fair/expiry", run: fairExpiry, needs: queue,
		why: "The end of a lease is the moment when everybody asks. The key goes to the head of " +
			"the queue, also if another is" +
			" the first to ask.",
	},
	{
		name: "fair/retry-after", run: fairRetryAfter, needs: queue,
		why: "One asks at the end of the lease that blocks: the head. If all in the queue did, a " +
			"crash would call a herd of them;" +
			" if nobody did, the queue would stand still until somebody's poll.",
	},
	{
		name: "fair/token", run: fairToken, needs: backend.Capabilities{Queue: true, Fencing: true},
		why: "A refusal gives the key's last token. A waiter that is handed a grant with a " +
			"higher one knows without asking that" +
			" it was made after that refusal, and counts its lease from there.",
	},
	{
		name: "fair/all-lapsed", run: fairAllLapsed, needs: queue,
		why: "A queue of the dead is no queue: when their places are over the key is " +
			"free for anybody.",
	},
	{
		name: "fair/dead-passed-over", run: fairDeadPassedOver, needs: queue,
		why: "A waiter that died long before its turn costs the others nothing: its place " +
			"lapsed meanwhile.",
	},
	{
		name: "fair/cancel-race", run: fairCancelRace, needs: queue,
		why: "A waiter is cancelled while the holder releases. Either order is fine, and neither " +
			"may leave the key with the one" +
			" that is gone: the next in the queue has it.",
	},
	{
		name: "fair/passed-on", run: fairPassedOn, needs: backend.Capabilities{
			Queue: true,
			Watch: true,
		},
		why: "Whoever leaves, from the queue or with a grant that it has not heard of, lets in " +
			"those who can be in that same step," +
			" and they hear of it. Nobody else's verb may come for a long time.",
	},
	{
		name: "fair/race", run: fairRace, needs: backend.Capabilities{Queue: true, Fencing: true},
		why: "Those who come at once each get a place of their own, and are served in the order " +
			"of the places that they were told.",
	},
	{
		name: "fair/faults", run: fairUnderFaults, needs: backend.Capabilities{
			Queue:   true,
			Fencing: true,
		}, slow: true,
		why: "Lost wake-ups, lost replies and doubled requests delay a queue. They do not change " +
			"its order, and it does not stand still.",
	},
}

// covers: W11, W6
func fairExpiry(e *env) {
	a, b := e.open(), e.open()
	for i := range 3 {
		key := e.key(fmt.Sprint(i))
		brief := e.brief(key)
		brief.TTL = max(e.caps.MinTTL, e.short/4)
		e.acquire(a, brief)
		waiter := e.inLine(key)
		e.forget(b, waiter)
		if _, err := b.TryAcquire(e.ctx, waiter); err == nil {
			continue // the machine stood still for longer than the lease
		}
		for start := time.Now(); time.Since(start) < 2*brief.TTL; e.pause(brief.TTL / 20) {
			e.refused(a, e.claim(key))
		}
		e.await("the head of the queue to be let in at the end of a lease", e.short+patience,
			func() bool {
				e.refused(a, e.claim(key))
				_, err := b.TryAcquire(e.ctx, waiter)
				return err == nil
			})
	}
}

// covers: W4, R18
func fairRetryAfter(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	g := e.acquire(a, e.claim(key))
	head, second := e.inLine(key), e.inLine(key)
	e.stand(b, head, 1)
	e.stand(b, second, 2)
	limit := e.roundedUp(g.TTL)
	for range 2 {
		if held := e.stand(b, head, 1); held.RetryAfter <= 0 || held.RetryAfter > limit {
			e.Errorf("RetryAfter = %v for the head, want above 0 and at most the "+
				"holder's lease of %v", held.RetryAfter, g.TTL)
		}
		if held := e.stand(b, second, 2); held.RetryAfter != 0 {
			e.Errorf("RetryAfter = %v for the second in the queue, want 0: the head asks",
				held.RetryAfter)
		}
	}
	if held := e.refused(b, e.claim(key)); held.RetryAfter <= 0 || held.RetryAfter > limit ||
		held.Position != 0 {
		e.Errorf("%+v for a claim that is not queued, want no Position, and when to ask", held)
	}
	e.lost("Release of a claim in the queue", release(e.ctx, b, head))
	if held := e.stand(b, second, 1); held.RetryAfter <= 0 {
		e.Errorf("RetryAfter = %v for who is the head now, want when the lease ends",
			held.RetryAfter)
	}
}

// covers: K1, W7
func fairToken(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.claim(key)
	last := e.acquire(a, holder).Token
	for range 4 {
		waiter := e.inLine(key)
		at := e.stand(a, waiter, 1).Token
		for _, held := range []backend.HeldError{
			e.stand(b, waiter, 1),
			e.refused(b, e.claim(key)),
		} {
			if held.Token < last {
				e.Errorf("HeldError.Token = %d, below the token %d that was granted before",
					held.Token, last)
			}
		}
		e.release(a, holder)
		g := e.turn(b, waiter)
		if g.Token <= at {
			e.Errorf("handed over token %d, not above the %d of the refusal before", g.Token, at)
		}
		last = e.above(last, g)
		holder = waiter
	}
}

// covers: W9, W5
func fairAllLapsed(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.claim(key)
	e.acquire(a, holder)
	for range 3 {
		dead := e.briefly(key)
		e.refused(b, dead)
		e.forget(b, dead)
	}
	e.pause(e.short + e.short/4)
	e.release(a, holder)
	e.takeOver(a, e.claim(key)) // at once, unless the store is late
}

// covers: W5, W9, G6
func fairDeadPassedOver(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.claim(key)
	e.acquire(a, holder)
	for range 3 {
		e.refused(b, e.briefly(key))
	}
	next := e.inLine(key)
	e.forget(b, next)
	e.await("the places of the dead to lapse", 4*e.short+patience, func() bool {
		return e.refused(b, next).Position == 1
	})
	e.release(a, holder)
	e.turn(b, next)
	e.release(b, next)
	e.free(a, key)
}

// covers: W7, W9
func fairCancelRace(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	for i := range 30 {
		holder, gone, next := e.claim(key), e.inLine(key), e.inLine(key)
		e.acquire(a, holder)
		e.stand(b, gone, 1)
		e.stand(b, next, 2)
		var released, left error
		parallel(2, func(who int) {
			if who == i%2 {
				_, released = a.Release(e.ctx, holder)
			} else {
				_, left = b.Release(e.ctx, gone)
			}
		})
		if released != nil {
			e.Errorf("Release by the holder = %v", released)
		}
		if left != nil {
			e.is("Release by the one that leaves", left, backend.ErrLost)
		}
		e.turn(b, next)
		e.tombstoned(a, gone)
		e.release(b, next)
	}
	e.free(a, key)
}

// covers: W7, W5
func fairPassedOn(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder, gone, next := e.claim(key), e.inLine(key), e.inLine(key)
	e.acquire(a, holder)
	wake, _ := e.watch(b, next)
	e.stand(b, gone, 1)
	e.stand(b, next, 2)
	e.release(a, holder)
	e.release(b, gone) // it holds, and has not heard of it
	e.handed(wake)
	e.turn(b, next)
	if !e.caps.Shared {
		return
	}
	key = e.key("readers")
	writer, reader := e.inLine(key), e.inLine(key)
	reader.Mode = backend.Shared
	e.acquire(a, e.mode(key, backend.Shared, 0))
	wake, _ = e.watch(b, reader)
	e.stand(b, writer, 1)
	e.stand(b, reader, 2)
	e.lost("Release of a claim in the queue", release(e.ctx, b, writer))
	e.handed(wake)
	e.turn(b, reader)
}

// covers: W10, W11
func fairRace(e *env) {
	clients := []backend.Backend{e.open(), e.open(), e.open()}
	key := e.key("k")
	last := e.claim(key)
	e.acquire(clients[0], last)
	const n = 24
	line := make([]backend.Claim, n)
	var mu sync.Mutex
	parallel(n, func(i int) {
		c := e.inLine(key)
		e.forget(clients[i%3], c)
		_, err := clients[i%3].TryAcquire(e.ctx, c)
		place := position(err)
		mu.Lock()
		defer mu.Unlock()
		if place < 1 || place > n || line[place-1].Key != "" {
			e.Errorf("place %d in the queue (%v), want one of its own from 1 to %d", place, err, n)
			return
		}
		line[place-1] = c
	})
	if e.Failed() {
		return
	}
	var token uint64
	for i, c := range line {
		e.release(clients[i%3], last)
		token = e.above(token, e.turn(clients[(i+1)%3], c))
		last = c
	}
}

// covers: W1, W2, W11, A3
func fairUnderFaults(e *env) {
	direct := e.open()
	key := e.key("k")
	holder := e.claim(key)
	e.acquire(direct, holder)
	fb := FaultyWith(e.h.Open(e), 1, Faults{
		Delay: time.Millisecond, LoseReply: 0.2, Vanish: 0.1, Refuse: 0.1, Twice: 0.2,
		LoseWake: 0.7,
	})
	e.later(func() { _ = fb.Close() })
	const n = 8
	tokens := make([]uint64, n)
	var waiters sync.WaitGroup
	for i := range n {
		c := e.inLine(key)
		e.stand(direct, c, i+1)
		waiters.Go(func() {
			tokens[i] = e.persist(fb, c)
			// It is repeated until it says that it was done before.
			for release(e.ctx, fb, c) != nil && e.ctx.Err() == nil {
				if errors.Is(release(e.ctx, direct, c), backend.ErrLost) {
					return
				}
			}
		})
	}
	e.release(direct, holder)
	waiters.Wait()
	for i := 1; i < n; i++ {
		if tokens[i] <= tokens[i-1] {
			e.Errorf("the one at place %d was served with token %d, the next one with %d", i,
				tokens[i-1], tokens[i])
		}
	}
}

// position is the place in the queue that a refusal tells, or 0.
func position(err error) int {
	var held *backend.HeldError
	if errors.As(err, &held) {
		return held.Position
	}
	return 0
}

// persist waits for c's turn as a client on a bad network does, by wake-ups and by asking.
func (e *env) persist(b backend.Backend, c backend.Claim) uint64 {
	var wake <-chan backend.Wake
	if e.caps.Watch {
		wake, _ = b.Watch(e.ctx, c) // it may fail, then there is asking
	}
	var err error
	for start := time.Now(); time.Since(start) < 4*patience; {
		var g backend.Grant
		if g, err = b.TryAcquire(e.ctx, c); err == nil {
			return g.Token
		}
		timer := time.NewTimer(50 * time.Millisecond)
		select {
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	e.Errorf("a waiter is still waiting after %v: %v", 4*patience, err)
	return 0
}
