package backendtest

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var repeatRules = []rule{
	{
		name: "repeat/same-grant", run: repeatSameGrant,
		why: "A repeat of a granted claim is granted: the reply to the first may have been lost. " +
			"Otherwise one's own lock is" +
			" reported as taken by another (go-redis SetNX with retries, go-redis#2985; " +
			"rueidislock; node-redlock#369).",
	},
	{
		name: "repeat/extends", run: repeatExtends,
		why: "A repeat counts the lease anew, as its caller counts its deadline from before the " +
			"repeat was sent: a lease that" +
			" still ran from the first attempt would end before its holder's belief.",
	},
	{
		name: "repeat/never-shortens", run: repeatNeverShortens,
		why: "A lease that was granted is believed in. A repeat with a shorter TTL must not cut " +
			"it (Redisson 3.27.2).",
	},
	{
		name: "repeat/concurrent", run: repeatConcurrent,
		why: "Copies of one attempt may run at once, from a slow connection and a fresh one. " +
			"They are one acquisition with one token.",
	},
	{
		name: "repeat/counts-once", run: repeatCountsOnce,
		why: "One Release ends a claim however often it was repeated. A counter per key counts " +
			"lost replies too, and the" +
			" lock is never free again.",
	},
}

// covers: A3, A2, X16
func repeatSameGrant(e *env) {
	a, b := e.open(), e.open()
	c := e.claim(e.key("k"))
	first := e.acquire(a, c)
	for _, client := range []backend.Backend{a, b, a} {
		again, err := client.TryAcquire(e.ctx, c)
		if err != nil {
			e.Fatalf("repeat of a granted claim = %v, want the same grant", err)
		}
		if again.Token != first.Token {
			e.broken("repeat of a granted claim has token %d, want the grant's %d", again.Token,
				first.Token)
			e.FailNow()
		}
	}
}

// covers: A6
func repeatExtends(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.brief(key)
	e.acquire(a, c)
	long := c
	long.TTL = e.long
	if _, err := a.TryAcquire(e.ctx, long); err != nil {
		e.Fatalf("repeat = %v", err)
	}
	e.pause(c.TTL + c.TTL/2)
	e.held(b, e.claim(key))
}

// covers: B6
func repeatNeverShortens(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.acquire(a, c)
	brief := c
	brief.TTL = e.caps.MinTTL
	if _, err := a.TryAcquire(e.ctx, brief); err != nil {
		e.Fatalf("repeat = %v", err)
	}
	held := e.held(b, e.claim(key))
	if held.RetryAfter != 0 && held.RetryAfter <= brief.TTL {
		e.Errorf("a repeat shortened the lease from %v to %v", c.TTL, held.RetryAfter)
	}
	e.pause(brief.TTL + 50*time.Millisecond)
	e.held(b, e.claim(key))
}

// covers: A3, A10
func repeatConcurrent(e *env) {
	clients := []backend.Backend{e.open(), e.open()}
	c := e.claim(e.key("k"))
	e.forget(clients[0], c)
	var mu sync.Mutex
	tokens := map[uint64]int{}
	parallel(16, func(i int) {
		g, err := clients[i%2].TryAcquire(e.ctx, c)
		if err != nil {
			e.Errorf("copy of an attempt = %v, want the grant", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		tokens[g.Token]++
	})
	if len(tokens) > 1 {
		e.broken("copies of one attempt were given different tokens: %v", tokens)
	}
}

// covers: A10
func repeatCountsOnce(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.acquire(a, c)
	for range 3 {
		if _, err := a.TryAcquire(e.ctx, c); err != nil {
			e.Fatalf("repeat = %v", err)
		}
	}
	e.release(a, c)
	e.free(b, key)
}
