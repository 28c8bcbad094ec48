package backendtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var handoffRules = []rule{
	{
		name: "handoff/same-step", run: handoffSameStep, needs: queue,
		why: "The release itself grants the head of the queue. A key that is free for a moment " +
			"goes to whoever asks in that" +
			" moment, and those who wait starve.",
	},
	{
		name: "handoff/wake", run: handoffWake, needs: backend.Capabilities{
			Queue: true,
			Watch: true, Fencing: true,
		},
		why: "The wake-up carries the grant: its token, and the WaiterTTL that it is good for, " +
			"or the TTL if that is shorter." +
			" A hand-off then costs one message, and nobody else is woken for nothing.",
	},
	{
		name: "handoff/extended", run: handoffExtended, needs: queue,
		why: "A waiter that is let in holds for its WaiterTTL, until it says that it lives by " +
			"asking: then for its TTL, as its" +
			" deadline counts from that attempt.",
	},
	{
		name: "handoff/renewed", run: handoffRenewed, needs: queue,
		why: "A grant that was handed over is a hold like any other. Renew is as good as a " +
			"repeated attempt.",
	},
	{
		name: "handoff/unclaimed", run: handoffUnclaimed, needs: queue,
		why: "A waiter that died before its grant reached it costs the others its WaiterTTL, not " +
			"its TTL, and not for ever" +
			" (Redisson's fair lock stands still for five minutes).",
	},
	{
		name: "handoff/not-early", run: handoffNotEarly, needs: queue,
		why: "Who was let in believes in its WaiterTTL from the refusal before. A grant that " +
			"ends before it has two holders.",
	},
	{
		name: "handoff/noticed", run: handoffNoticed, needs: backend.Capabilities{
			Queue: true,
			Watch: true,
		},
		why: "A lease that ran out lets the head in as soon as anybody's verb notices, and the " +
			"head hears of it, whoever asked.",
	},
	{
		name: "handoff/before", run: handoffBefore, needs: backend.Capabilities{
			Queue: true,
			Watch: true, Fencing: true,
		},
		why: "Whoever is let in is told who held before, as far as the releases said so: else " +
			"nobody finds out because of whom" +
			" a request was slow, if that one came and went while it waited.",
	},
	{
		name: "handoff/renamed", run: handoffRenamed, needs: queue,
		why: "A claim that waits may say anew who asks: the goroutine that began to wait may not " +
			"be the one that will hold.",
	},
}

// handed waits for the wake-up with a grant. Other signals are spurious, and allowed.
func (e *env) handed(wake <-chan backend.Wake) backend.Grant {
	e.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case w, open := <-wake:
			if !open {
				e.Fatalf("the watch was closed")
			}
			if w.Granted {
				return w.Grant
			}
		case <-timer.C:
			e.Fatalf("the claim that was let in got no wake-up with its grant")
		}
	}
}

// covers: W6, W11
func handoffSameStep(e *env) {
	a, b := e.open(), e.open()
	for i := range 5 {
		key := e.key(fmt.Sprint(i))
		holder, waiter := e.claim(key), e.inLine(key)
		holder.NoneInFlight = i%2 == 0
		e.acquire(a, holder)
		e.stand(b, waiter, 1)
		e.release(a, holder)
		if e.caps.Inspect {
			state, err := a.Inspect(e.ctx, key)
			if err != nil || len(state.Holders) != 1 || state.Holders[0].Owner != waiter.Owner ||
				len(state.Waiters) != 0 {
				e.Errorf("after the release Inspect = %+v, %v; want the waiter as holder, and "+
					"nobody in the queue", state, err)
			}
		}
		e.refused(a, e.claim(key))
		e.turn(b, waiter)
		e.release(b, waiter)
		e.free(a, key)
	}
}

// covers: W6, W4
func handoffWake(e *env) {
	a, b := e.open(), e.open()
	for i, place := range []struct{ asked, kept time.Duration }{
		{e.long / 2, 0},
		{2 * e.long, 0},
		{e.long / 2, 2 * e.long},
		{e.long / 2, 0},
		{2 * e.long, 3 * e.long},
	} {
		key := e.key(fmt.Sprint(i))
		holder := e.claim(key)
		e.acquire(a, holder)
		head, second := e.inLine(key), e.inLine(key)
		head.WaiterTTL = place.asked
		wake, _ := e.watch(b, head)
		other, _ := e.watch(b, second)
		refusal := e.stand(b, head, 1)
		e.stand(b, second, 2)
		if place.kept > 0 {
			kept := head
			kept.WaiterTTL = place.kept
			e.heartbeat(b, kept)
		}
		e.release(a, holder)
		got := e.handed(wake)
		g := e.turn(b, head)
		if got.Token != g.Token || got.Token <= refusal.Token {
			e.broken("woken with token %d after a refusal at %d, granted %d", got.Token,
				refusal.Token, g.Token)
		}
		// It would believe that it holds for longer than is stored, or than the store may grant.
		if most := min(max(place.asked, place.kept), head.TTL); got.TTL > e.roundedUp(most) {
			e.broken("woken with a lease of %v, want %v at most", got.TTL, most)
		}
		if least := min(place.asked, head.TTL); got.TTL < least {
			e.Errorf("woken with a lease of %v, want %v", got.TTL, least)
		}
		select {
		case w := <-other:
			if w.Granted {
				e.Errorf("the second in the queue was woken with a grant: %+v", w)
			}
		default:
		}
		e.release(b, head)
		e.above(got.Token, e.handed(other))
	}
}

func handoffBefore(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.claim(key)
	e.acquire(a, holder)
	var (
		claims []backend.Claim
		wakes  []<-chan backend.Wake
		before []backend.Past
	)
	for i := range backend.MaxBefore + 2 {
		c := e.inLine(key)
		c.Meta = backend.Meta{Service: "ä \"quoted\"", Host: fmt.Sprint("host", i), PID: i + 1}
		wake, _ := e.watch(b, c)
		e.stand(b, c, i+1)
		claims, wakes = append(claims, c), append(wakes, wake)
	}
	e.release(a, holder) // tells nothing
	for i, c := range claims {
		got := e.handed(wakes[i])
		if len(got.Before) > backend.MaxBefore || len(got.Before) < min(i, backend.MaxBefore) {
			e.Fatalf("the hand-over to %d tells of %d holds before", i, len(got.Before))
		}
		// The last ones are compared, backwards; the first may be told, too.
		for k := range min(i, backend.MaxBefore) {
			past, want := got.Before[len(got.Before)-1-k], claims[i-1-k]
			if past.Meta != want.Meta || past.Token == 0 || past.For <= 0 {
				e.Fatalf("the hand-over to %d tells %d steps back of %+v, want %+v", i, k, past,
					want.Meta)
			}
		}
		before = append(before, backend.Past{Meta: c.Meta, Token: got.Token, For: time.Millisecond})
		c.Before = before // more than are passed on
		e.turn(b, c)
		e.release(b, c)
	}
}

func handoffRenamed(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder, waiter := e.claim(key), e.inLine(key)
	e.acquire(a, holder)
	waiter.Meta = backend.Meta{Service: "before", PID: 1}
	e.stand(b, waiter, 1)
	waiter.Meta = backend.Meta{Service: "after", PID: 2}
	e.stand(b, waiter, 1)
	e.release(a, holder)
	e.turn(b, waiter)
	if held := e.refused(a, e.claim(key)); held.Holder != waiter.Meta {
		e.Errorf("the holder is shown as %+v, and calls itself %+v", held.Holder, waiter.Meta)
	}
}

// covers: A6, W6
func handoffExtended(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder, waiter := e.claim(key), e.briefly(key)
	e.acquire(a, holder)
	e.inTime(b, waiter)
	e.release(a, holder)
	g := e.turn(b, waiter)
	if g.TTL < waiter.TTL {
		e.Errorf("asked for a lease of %v, granted %v", waiter.TTL, g.TTL)
	}
	e.pause(waiter.WaiterTTL + waiter.WaiterTTL/2)
	e.refused(a, e.claim(key))
	e.renewed(b, waiter)
}

// inTime queues for a claim whose place lapses soon. What follows at once is well within
// its WaiterTTL, unless the machine stands still for that long.
func (e *env) inTime(b backend.Backend, c backend.Claim) {
	e.Helper()
	e.stand(b, c, 1)
}

// covers: A6
func handoffRenewed(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder, waiter := e.claim(key), e.briefly(key)
	e.acquire(a, holder)
	e.inTime(b, waiter)
	e.lost("Renew by one who waits", b.Renew(e.ctx, waiter))
	e.release(a, holder)
	e.renewed(b, waiter)
	e.pause(waiter.WaiterTTL + waiter.WaiterTTL/2)
	e.refused(a, e.claim(key))
	e.release(b, waiter)
}

// covers: W9, G6
func handoffUnclaimed(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.claim(key)
	e.acquire(a, holder)
	dead, next := e.briefly(key), e.inLine(key)
	e.inTime(b, dead)
	e.stand(b, next, 2)
	sent := time.Now()
	e.release(a, holder)
	e.await("a grant that nobody claims to lapse", e.short+patience, func() bool {
		e.refused(a, e.claim(key))
		_, err := b.TryAcquire(e.ctx, next)
		return err == nil
	})
	if took := time.Since(sent); took > 2*e.short+patience/2 {
		e.Errorf("a dead waiter with a WaiterTTL of %v blocked for %v", dead.WaiterTTL, took)
	}
	e.lost("Renew by the one whose grant lapsed", b.Renew(e.ctx, dead))
	e.lost("Release by the one whose grant lapsed", release(e.ctx, b, dead))
	e.refused(a, e.claim(key))
	e.release(b, next)
	e.free(a, key)
}

// covers: A6, I1
func handoffNotEarly(e *env) {
	a, b := e.open(), e.open()
	for i, waits := range e.odd() {
		key := e.key(fmt.Sprint(i))
		holder, waiter := e.claim(key), e.inLine(key)
		waiter.WaiterTTL = waits
		e.acquire(a, holder)
		sent := time.Now() // from before the refusal: a store may keep the lease that the place has
		e.refused(b, waiter)
		e.forget(b, waiter)
		e.release(a, holder)
		if e.caps.Inspect { // on a slow machine the place may have lapsed before
			state, err := a.Inspect(e.ctx, key)
			if err != nil || len(state.Holders) == 0 {
				continue
			}
		}
		e.aside(func() { e.notBefore(a, key, sent, waits) })
	}
}

// covers: W6, W2
func handoffNoticed(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.acquire(a, e.brief(key))
	waiter := e.inLine(key)
	wake, _ := e.watch(b, waiter)
	e.stand(b, waiter, 1)
	e.await("the head to hear of a lease that ran out, as another asks", 2*e.short+patience,
		func() bool {
			state, err := a.Inspect(e.ctx, key)
			isIn := err == nil && slices.ContainsFunc(state.Holders, func(h backend.Holder) bool {
				return h.Owner == waiter.Owner
			})
			select {
			// Without the grant, as where its turn came while the store found out whether it had,
			// it is to ask itself.
			case w := <-wake:
				if w.Granted || isIn {
					return true
				}
			default:
			}
			e.refused(a, e.claim(key))
			return false
		})
	e.turn(b, waiter)
}
