package backendtest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var notBefore = backend.Capabilities{NotBefore: true}

var earlyRules = []rule{
	{
		name: "early/refused", run: earlyRefused, needs: notBefore,
		why: "A job that is done is not to be done again in its period by another instance, whose clock is late (gocron#841).",
	},
	{
		name: "early/others", run: earlyOthers, needs: notBefore,
		why: "The mark is for those who heed it. A plain lock of the key is none of their business.",
	},
	{
		name: "early/after-others", run: earlyAfterOthers, needs: notBefore,
		why: "What a client remembers of a key that it took and freed itself is no reason to pass the mark, nor to leave none:" +
			" the job would be done twice.",
	},
	{
		name: "early/ends", run: earlyEnds, needs: notBefore,
		why: "A mark that stays is a job that is never done again.",
	},
	{
		name: "early/only-holder", run: earlyOnlyHolder, needs: notBefore,
		why: "A holder that lost the lock has no say in when the next may begin; and what is renewed is not done yet.",
	},
	{
		name: "early/race", run: earlyRace, needs: notBefore,
		why: "The mark is there in the step that frees the key. Between the two the job would be done twice.",
	},
	{
		name: "early/input", run: earlyInput, needs: notBefore, once: true,
		why: "Who waits in the queue is granted by others, who do not ask what it heeds.",
	},
}

// heeds returns a fresh claim of key that heeds and leaves a mark of d.
func (e *env) heeds(key string, d time.Duration) backend.Claim {
	c := e.claim(key)
	c.NotBefore, c.NoneInFlight = d, true
	return c
}

// early must refuse c for d at most, or a little more where the store rounds up.
func (e *env) early(b backend.Backend, c backend.Claim, d time.Duration) {
	e.Helper()
	_, err := b.TryAcquire(e.ctx, c)
	var early *backend.EarlyError
	if !errors.Is(err, backend.ErrEarly) || !errors.As(err, &early) {
		e.forget(b, c)
		e.Fatalf("TryAcquire of a claim that heeds the mark = %v, want a *backend.EarlyError", err)
	}
	if early.RetryAfter <= 0 || early.RetryAfter > d+2*time.Second {
		e.Errorf("RetryAfter = %v, want what is left of %v", early.RetryAfter, d)
	}
}

// marked leaves a mark of d on a key that is free.
func (e *env) marked(b backend.Backend, key string, d time.Duration) {
	e.Helper()
	c := e.heeds(key, d)
	e.acquire(b, c)
	e.release(b, c)
}

func earlyRefused(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.marked(a, key, e.long)
	for _, client := range []backend.Backend{a, b} {
		e.early(client, e.heeds(key, e.long), e.long)
		e.early(client, e.heeds(key, time.Millisecond), e.long) // its own length is for when it ends
	}
	e.marked(a, e.key("other"), e.long)
	if e.caps.Inspect {
		e.unheld(b, key)
	}
}

func earlyOthers(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.marked(a, key, e.long)
	e.free(b, key)
	if e.caps.Queue {
		c := e.inLine(key)
		e.acquire(b, c)
		e.early(a, e.heeds(key, e.long), e.long) // rather than held: waiting for the holder would be in vain
		e.release(b, c)
	}
	c := e.claim(key)
	e.acquire(b, c)
	c.NotBefore = e.long
	e.release(b, c) // one mark in the place of another
	e.early(a, e.heeds(key, e.long), e.long)
}

func earlyAfterOthers(e *env) {
	b := e.open()
	key := e.key("k")
	e.marked(b, key, e.long)
	for range 3 {
		e.free(b, key)
	}
	e.early(b, e.heeds(key, e.long), e.long)
	key = e.key("other")
	for range 3 {
		e.free(b, key)
	}
	c := e.claim(key)
	c.NoneInFlight = true
	e.acquire(b, c)
	c.NotBefore = e.long
	e.release(b, c)
	e.early(b, e.heeds(key, e.long), e.long)
}

func earlyEnds(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.marked(a, key, e.long)
	c := e.claim(key)
	e.acquire(b, c)
	c.NotBefore = e.short // the last one counts
	start := time.Now()
	e.release(b, c)
	next := e.heeds(key, e.short)
	e.forget(a, next)
	e.await("the mark to end", 4*e.short+patience, func() bool {
		_, err := a.TryAcquire(e.ctx, next)
		return err == nil
	})
	if took := time.Since(start); took < e.short-e.short/100 {
		e.Errorf("a mark of %v was over after %v", e.short, took)
	}
	next.NotBefore = 0
	e.release(a, next)
	e.marked(b, key, time.Millisecond) // it left no mark
}

func earlyOnlyHolder(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	gone, never := e.heeds(key, e.long), e.heeds(key, e.long)
	e.acquire(a, gone)
	if err := a.Renew(e.ctx, gone); err != nil {
		e.Errorf("Renew with NotBefore = %v", err)
	}
	plain := gone
	plain.NotBefore = 0
	e.release(a, plain)
	e.lost("Release after the hold ended", release(e.ctx, a, gone))
	e.lost("Release of a claim that never held", release(e.ctx, b, never))
	next := e.heeds(key, e.long)
	e.acquire(b, next)
	e.lost("Release while another holds", release(e.ctx, a, e.heeds(key, e.long)))
	if _, err := b.TryAcquire(e.ctx, next); err != nil {
		e.Errorf("a repeat of a claim that heeds marks and holds = %v", err)
	}
	e.release(b, next)
	e.early(a, e.heeds(key, e.long), e.long)
}

func earlyRace(e *env) {
	clients := []backend.Backend{e.open(), e.open(), e.open()}
	for _, key := range []string{e.key("k1"), e.key("k2")} {
		var done, early atomic.Int64
		parallel(6, func(i int) {
			b := clients[i%len(clients)]
			for e.ctx.Err() == nil {
				c := e.heeds(key, e.long)
				_, err := b.TryAcquire(e.ctx, c)
				switch {
				case err == nil:
					if done.Add(1) > 1 {
						e.Errorf("granted again right after the release that left a mark")
						e.forget(b, c)
						return
					}
					_, err = b.Release(e.ctx, c)
				case errors.Is(err, backend.ErrHeld):
					e.pause(time.Millisecond)
					continue
				case errors.Is(err, backend.ErrEarly):
					early.Add(1)
					return
				}
				if err != nil {
					e.Errorf("a worker's attempt or release = %v", err)
					return
				}
			}
		})
		if done.Load() != 1 || early.Load() != 6 {
			e.Errorf("%d were granted and %d told that it is early, want 1 and 6", done.Load(), early.Load())
		}
	}
}

func earlyInput(e *env) {
	b := e.open()
	for what, change := range map[string]func(*backend.Claim){
		"negative": func(c *backend.Claim) { c.NotBefore = -1 },
		"too long": func(c *backend.Claim) { c.NotBefore = backend.MaxNotBefore + 1 },
		"queued":   func(c *backend.Claim) { c.Queue, c.WaiterTTL = true, e.long },
		"shared":   func(c *backend.Claim) { c.Mode = backend.Shared },
		"entrant":  func(c *backend.Claim) { c.Reentrant, c.Hold = true, backend.NewOwner() },
	} {
		c := e.heeds(e.key("k"), e.long)
		change(&c)
		if e.caps.Missing(backend.Capabilities{Queue: c.Queue, Shared: c.Mode == backend.Shared, Reentrant: c.Reentrant}) != nil {
			continue
		}
		_, err := b.TryAcquire(e.ctx, c)
		e.invalid("TryAcquire of a claim with NotBefore that is "+what, err, "not before")
	}
}
