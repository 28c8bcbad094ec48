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
		why: "A job that is done is not to be done again in its period by another instance, " +
			"whose clock is late (gocron#841).",
	},
	{
		name: "early/others", run: earlyOthers, needs: notBefore,
		why: "The mark is for those who heed it. A plain lock of the key is none of " +
			"their business.",
	},
	{
		name: "early/after-others", run: earlyAfterOthers, needs: notBefore,
		why: "What a client remembers of a key that it took and freed itself is no reason to " +
			"pass the mark, nor to leave none:" +
			" the job would be done twice.",
	},
	{
		name: "early/ends", run: earlyEnds, needs: notBefore,
		why: "A mark that stays is a job that is never done again.",
	},
	{
		name: "early/own-time", run: earlyOwnTime, needs: notBefore,
		why: "The mark says when the run began, and each claim decides by its own time. By the " +
			"mark's a job whose period is" +
			" made shorter stands still for the old one, and one whose period is made longer " +
			"runs again at once.",
	},
	{
		name: "early/ran", run: earlyRan, needs: notBefore,
		why: "The time counts from when a run began, by the store's clock: else each run shifts " +
			"the schedule by as long as it takes.",
	},
	{
		name: "early/awaited", run: earlyAwaited, needs: notBefore,
		why: "Who waited while a job ran has it done, however long it took. Instances that are " +
			"to do it once, and take longer" +
			" than its time, did it one after the other.",
	},
	{
		name: "early/only-holder", run: earlyOnlyHolder, needs: notBefore,
		why: "A holder that lost the lock has no say in when the next may begin; and what is " +
			"renewed is not done yet.",
	},
	{
		name: "early/race", run: earlyRace, needs: notBefore,
		why: "The mark is there in the step that frees the key. Between the two the job would " +
			"be done twice.",
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
		// Early, rather than held: waiting for the holder would be in vain.
		e.early(a, e.heeds(key, e.long), e.long)
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

// notEarly must be granted c, which leaves no mark.
func (e *env) notEarly(b backend.Backend, c backend.Claim) {
	e.Helper()
	e.acquireSoon(b, c)
	c.NotBefore = 0
	e.release(b, c)
}

func earlyOwnTime(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.marked(a, key, e.long)
	e.notEarly(b, e.heeds(key, time.Millisecond))
	e.early(b, e.heeds(key, e.long), e.long) // it is still there
	e.marked(a, e.key("other"), time.Millisecond)
	e.pause(2 * time.Millisecond)
	for _, client := range []backend.Backend{a, b} {
		e.early(client, e.heeds(e.key("other"), e.long), e.long)
	}
	e.notEarly(a, e.heeds(e.key("other"), time.Millisecond))
}

func earlyRan(e *env) {
	a, b := e.open(), e.open()
	for ran, left := range map[time.Duration]time.Duration{
		e.long / 2:         e.long / 2,
		e.long - e.long/10: e.long / 10,
	} {
		key := e.key(ran.String())
		c := e.heeds(key, e.long)
		e.acquire(a, c)
		c.Ran = ran
		e.release(a, c)
		e.early(b, e.heeds(key, e.long), left)
		e.notEarly(b, e.heeds(key, ran-time.Second))
	}
	c := e.heeds(e.key("k"), e.short)
	e.acquire(a, c)
	c.Ran = 2 * e.long
	e.release(a, c)
	e.notEarly(b, e.heeds(c.Key, e.long))
}

func earlyAwaited(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	waits := func() backend.Claim {
		c := e.heeds(key, time.Millisecond)
		_, err := b.TryAcquire(e.ctx, c)
		var held *backend.HeldError
		if !errors.As(err, &held) || held.Token == 0 {
			e.Fatalf("TryAcquire of what is held = %v, want a *backend.HeldError with a token", err)
		}
		c.Awaited = held.Token
		return c
	}
	job := e.heeds(key, time.Millisecond)
	e.acquire(a, job)
	waiter := waits()
	job.Ran = e.long
	e.release(a, job)
	var early *backend.EarlyError
	if _, err := b.TryAcquire(e.ctx, waiter); !errors.As(err, &early) || early.RetryAfter != 0 {
		e.Errorf("TryAcquire of a claim that waited while the job ran = %v, want a "+
			"*backend.EarlyError for no time", err)
	}
	e.notEarly(b, e.heeds(key, time.Millisecond)) // which has not waited

	other := e.claim(key)
	e.acquire(a, other)
	waiter = waits()
	e.release(a, other)
	e.notEarly(b, waiter) // whoever held ran no job, and the one before is another's

	crashed, next := e.claim(key), e.heeds(key, time.Millisecond)
	e.acquire(a, crashed)
	waiter = waits()
	e.release(a, crashed)
	e.acquireSoon(a, next)
	next.Ran = e.long
	e.release(a, next) // a later one has run it
	_, err := b.TryAcquire(e.ctx, waiter)
	e.is("TryAcquire of a claim that waited for one before the run", err, backend.ErrEarly)
}

// acquireSoon is acquire of a claim that a store which counts in seconds may refuse for a moment.
func (e *env) acquireSoon(b backend.Backend, c backend.Claim) {
	e.Helper()
	e.forget(b, c)
	e.await("a claim that is not early to be granted", patience, func() bool {
		_, err := b.TryAcquire(e.ctx, c)
		if err != nil && !errors.Is(err, backend.ErrEarly) {
			e.Errorf("TryAcquire = %v", err)
		}
		return err == nil
	})
}

func earlyOnlyHolder(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	gone, never := e.heeds(key, e.long), e.heeds(key, e.long)
	e.acquire(a, gone)
	e.renewed(a, gone)
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
			e.Errorf("%d were granted and %d told that it is early, want 1 and 6", done.Load(),
				early.Load())
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
		if e.caps.Missing(backend.Capabilities{
			Queue: c.Queue, Shared: c.Mode == backend.Shared,
			Reentrant: c.Reentrant,
		}) != nil {
			continue
		}
		_, err := b.TryAcquire(e.ctx, c)
		e.invalid("TryAcquire of a claim with NotBefore that is "+what, err, "not before")
	}
}
