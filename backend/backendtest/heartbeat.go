package backendtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var heartbeatRules = []rule{
	{
		name: "heartbeat/keeps", run: heartbeatKeeps, needs: backend.Capabilities{
			Queue:   true,
			Inspect: true,
		},
		why: "Ten thousand waiters of one process send one request, and none of them loses " +
			"its place by it.",
	},
	{
		name: "heartbeat/tells", run: heartbeatTells, needs: backend.Capabilities{Queue: true},
		why: "A waiter whose place is gone, or that was granted the key, asks again: a heartbeat " +
			"that says all is well" +
			" would leave it asleep beside its own grant.",
	},
	{
		name: "heartbeat/keys", run: heartbeatKeys, needs: backend.Capabilities{Queue: true},
		why: "A process that waits for thousands of keys keeps its places in few requests; what " +
			"became of one key, or is" +
			" wrong with it, is nothing to the others.",
	},
	{
		name: "heartbeat/token", run: heartbeatToken, needs: backend.Capabilities{
			Queue:   true,
			Fencing: true,
		},
		why: "A grant whose token is above that of the heartbeat was made after it: the proof by " +
			"which a hand-over is" +
			" believed without asking.",
	},
	{
		name: "heartbeat/input", run: heartbeatInput, needs: backend.Capabilities{Queue: true},
		once: true,
		why:  "What is no heartbeat is refused before anything is written.",
	},
}

// heartbeat makes one, and skips the rule where each claim has to repeat its attempt. A claim that
// waits is told what TryAcquire would.
func (e *env) heartbeat(b backend.Backend, claims ...backend.Claim) []bool {
	e.Helper()
	answers, err := b.Heartbeat(e.ctx, claims)
	if errors.Is(err, errors.ErrUnsupported) {
		e.Log("no heartbeat for several waiters")
		return nil
	}
	if err != nil || len(answers) != len(claims) {
		e.Fatalf("Heartbeat of %d claims = %v, %v", len(claims), answers, err)
	}
	waiting := make([]bool, len(claims))
	for i, answer := range answers {
		var held *backend.HeldError
		waiting[i] = errors.As(answer, &held)
		if waiting[i] && (held.Position == 0 || held.Token == 0 || held.Position == 1 &&
			held.RetryAfter <= 0) {
			e.Errorf("Heartbeat of claim %d = %+v: no position, no token, or the first is not "+
				"told when to ask", i, held)
		}
		if !waiting[i] && !errors.Is(answer, backend.ErrLost) {
			e.Errorf("Heartbeat of claim %d = %v, want ErrHeld or ErrLost", i, answer)
		}
	}
	return waiting
}

// queued is a claim that waits for key for so long without a word.
func (e *env) queued(b backend.Backend, key string, lasts time.Duration) backend.Claim {
	e.Helper()
	c := e.claim(key)
	c.Queue, c.WaiterTTL = true, lasts
	if _, err := b.TryAcquire(e.ctx, c); !errors.Is(err, backend.ErrHeld) {
		e.Fatalf("TryAcquire of a key that is held = %v", err)
	}
	return c
}

// forgetAll releases claims, whatever became of them.
func (e *env) forgetAll(b backend.Backend, claims ...backend.Claim) {
	for _, c := range claims {
		_, _ = b.Release(e.ctx, c)
	}
}

// covers: W5
func heartbeatKeeps(e *env) {
	lasts := e.short
	for e.keepsPlaces(lasts) { // the machine was too busy to keep places for so short a time
		lasts *= 4
	}
}

// keepsPlaces keeps the places of three waiters, which last so long, and reports whether a
// heartbeat was late, so that they may be lost.
func (e *env) keepsPlaces(lasts time.Duration) (late bool) {
	b := e.open()
	key := e.key("k")
	held := e.claim(key)
	e.acquire(b, held)
	defer e.forgetAll(b, held)
	kept := time.Now()
	claims := []backend.Claim{
		e.queued(b, key, lasts), e.queued(b, key, lasts),
		e.queued(b, key, lasts),
	}
	defer e.forgetAll(b, claims...)
	for range 6 {
		e.pause(lasts / 4)
		sent := time.Now()
		waiting := e.heartbeat(b, claims...)
		if waiting == nil {
			return false
		}
		if time.Since(kept) > lasts && lasts < e.long {
			e.Logf("a heartbeat came %v after the one before, for places of %v", time.Since(kept),
				lasts)
			return true
		}
		for i, still := range waiting {
			if !still {
				e.Errorf("the place of waiter %d was lost although it was kept in time, %v after "+
					"the heartbeat before",
					i, time.Since(kept))
			}
		}
		kept = sent
	}
	state, err := b.Inspect(e.ctx, key)
	if err != nil || len(state.Waiters) != len(claims) {
		e.Fatalf("Inspect = %d waiters, %v; want %d", len(state.Waiters), err, len(claims))
	}
	for i, w := range state.Waiters {
		if w.Owner != claims[i].Owner {
			e.Errorf("place %d has another claim than before", i+1)
		}
	}
	return false
}

// covers: W5, W15
func heartbeatTells(e *env) {
	b := e.open()
	key := e.key("k")
	c := e.claim(key)
	e.acquire(b, c)
	first, second, gone := e.queued(b, key, e.long), e.queued(b, key, e.long), e.queued(b, key,
		e.long)
	defer e.forgetAll(b, second, first)
	if _, err := b.Release(e.ctx, gone); err != nil && !errors.Is(err, backend.ErrLost) {
		e.Fatalf("Release of a waiter = %v", err)
	}
	never := e.claim(key)
	never.Queue, never.WaiterTTL = true, e.long
	if waiting := e.heartbeat(b, first, second, gone, never); len(waiting) == 4 {
		if want := [4]bool{true, true, false, false}; [4]bool(waiting) != want {
			e.Errorf("waiting = %v, want %v: two wait, one has left, one never came", waiting, want)
		}
	}
	if _, err := b.Release(e.ctx, c); err != nil {
		e.Fatalf("Release = %v", err)
	}
	if waiting := e.heartbeat(b, second, first); len(waiting) == 2 && (!waiting[0] || waiting[1]) {
		e.Errorf("waiting = %v: the first was granted the key, the second waits", waiting)
	}
	e.acquire(b, first)
}

// covers: W5, W9
func heartbeatKeys(e *env) {
	b := e.open()
	const keys = 110 // more than one request of Redis, or of etcd, has
	var claims, holders []backend.Claim
	for i := range keys {
		key := e.key(fmt.Sprint("k", i))
		held := e.claim(key)
		e.acquire(b, held)
		claims = append(claims, e.queued(b, key, e.long))
		if i%10 == 0 { // some wait for one key
			claims = append(claims, e.queued(b, key, e.long))
		}
		holders = append(holders, held)
	}
	defer e.forgetAll(b, claims...)
	defer e.forgetAll(b, holders...)
	waiting := e.heartbeat(b, claims...)
	if waiting == nil {
		return
	}
	if i := slices.Index(waiting, false); i >= 0 {
		e.Errorf("claim %d of %d does not wait", i, len(claims))
	}
	gone := map[string]bool{} // by claim ID
	for i, held := range holders[:3] {
		if _, err := b.Release(e.ctx, held); err != nil {
			e.Fatalf("Release = %v", err)
		}
		first := slices.IndexFunc(claims, func(c backend.Claim) bool { return c.Key == held.Key })
		gone[claims[first].ID()] = true
		if i == 2 { // granted, and given back: a free lock
			e.forgetAll(b, claims[first])
		}
	}
	for i, waits := range e.heartbeat(b, claims...) {
		if waits == gone[claims[i].ID()] {
			e.Errorf("claim %d: waiting = %v after three keys were let go", i, waits)
		}
	}
}

// covers: A6, K1
func heartbeatToken(e *env) {
	b := e.open()
	key := e.key("k")
	c := e.claim(key)
	first := e.acquire(b, c)
	next := e.queued(b, key, e.long)
	defer e.forgetAll(b, next)
	answers, err := b.Heartbeat(e.ctx, []backend.Claim{next})
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	var held *backend.HeldError
	if err != nil || !errors.As(answers[0], &held) {
		e.Fatalf("Heartbeat = %v, %v", answers, err)
	}
	if _, err := b.Release(e.ctx, c); err != nil {
		e.Fatalf("Release = %v", err)
	}
	if g := e.acquire(b, next); held.Token < first.Token || g.Token <= held.Token {
		e.Errorf("tokens %d, then %d by the heartbeat, then %d: want each grant's above what was "+
			"answered before it",
			first.Token, held.Token, g.Token)
	}
}

func heartbeatInput(e *env) {
	b := e.open()
	one := e.claim(e.key("k"))
	one.Queue, one.WaiterTTL = true, e.long
	plain := one
	plain.Queue, plain.WaiterTTL = false, 0
	for name, claims := range map[string][]backend.Claim{
		"no queue": {one, plain}, "too many": make([]backend.Claim, backend.MaxHeartbeat+1),
	} {
		if _, err := b.Heartbeat(e.ctx, claims); !errors.Is(err, backend.ErrInvalid) &&
			!errors.Is(err, errors.ErrUnsupported) {
			e.Errorf("Heartbeat of %s = %v, want ErrInvalid", name, err)
		}
	}
}
