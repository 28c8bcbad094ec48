package backendtest

import (
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var renewRules = []rule{
	{
		name: "renew/extends", run: renewExtends,
		why: "A renewal that does not move the lease's end lets the lock go in the " +
			"middle of the work.",
	},
	{
		name: "renew/never-shortens", run: renewNeverShortens,
		why: "The holder believes in the longer lease that it was granted. A renewal with a " +
			"shorter TTL must not cut it" +
			" (Redisson 3.27.2: locking again reset the remaining time).",
	},
	{
		name: "renew/never-revives", run: renewNeverRevives,
		why: "A hold that ended stays ended, even if nobody took the key since: its owner may " +
			"have been told that it is lost," +
			" and others may have held in between (redsync's SetNXOnExtend re-creates).",
	},
	{
		name: "renew/after-release", run: renewAfterRelease,
		why: "A renewal that is late, behind its own release, must not create the lock again: " +
			"nobody would ever release it.",
	},
	{
		name: "renew/by-another", run: renewByAnother,
		why: "A renewal by a claim that does not hold must neither succeed nor lengthen the " +
			"holder's lease.",
	},
	{
		name: "renew/never-acquired", run: renewNeverAcquired,
		why: "Renew never creates: it is not an acquire that skips the look at who holds.",
	},
	{
		name: "renew/races-release", run: renewRacesRelease, slow: true,
		why: "Renewal and release meet in every program that unlocks. Whichever comes first, " +
			"nothing is left" +
			" (cozy-stack#4929: a tick during unlock).",
	},
}

// covers: B2
func renewExtends(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.brief(key)
	e.acquire(a, c)
	c.TTL = e.long
	e.renewed(a, c)
	held := e.held(b, e.claim(key))
	if held.RetryAfter != 0 && held.RetryAfter <= e.short {
		e.Errorf("after a renewal for %v the lease ends in %v", c.TTL, held.RetryAfter)
	}
	e.pause(e.short + e.short/2)
	e.held(b, e.claim(key))
	e.release(a, c)
}

// covers: B6
func renewNeverShortens(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.acquire(a, c)
	brief := c
	brief.TTL = e.caps.MinTTL
	e.renewed(a, brief)
	e.pause(brief.TTL + 50*time.Millisecond)
	e.held(b, e.claim(key))
	e.renewed(a, c)
}

// covers: B5, B8
func renewNeverRevives(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.brief(key)
	e.acquire(a, c)
	// Renew is not asked while the lease may run, as it would extend it.
	e.ranOut(b, c)
	e.lost("Renew of a lease that ran out", a.Renew(e.ctx, c))
	e.free(b, key)

	untouched := e.brief(e.key("untouched")) // nobody asks for this key in between
	g := e.acquire(a, untouched)
	// A store may end leases late; then the hold still is one, and Renew may extend it.
	for late := range 4 {
		e.pause(g.TTL + 50*time.Millisecond + time.Duration(late)*g.TTL)
		err := a.Renew(e.ctx, untouched)
		if err == nil {
			continue
		}
		e.lost("Renew of a lease that ran out, of a key that nobody asked for since", err)
		e.free(b, untouched.Key)
		return
	}
	e.broken("Renew revives a lease of %v that ran out long ago", g.TTL)
}

// covers: B5
func renewAfterRelease(e *env) {
	a, b := e.open(), e.open()
	for _, noneInFlight := range []bool{false, true} {
		key := e.key("k")
		c := e.claim(key)
		c.NoneInFlight = noneInFlight
		e.acquire(a, c)
		e.release(a, c)
		e.lost("Renew after Release", a.Renew(e.ctx, c))
		e.free(b, key)
	}
}

// covers: B4
func renewByAnother(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.brief(key)
	e.acquire(a, c)
	e.lost("Renew by a claim that does not hold", b.Renew(e.ctx, e.claim(key)))
	e.renewed(a, c)
	e.lost("Renew by a claim that does not hold", a.Renew(e.ctx, e.claim(key)))
	e.takeOver(b, e.claim(key)) // the lease was not lengthened by those
}

// covers: B5
func renewNeverAcquired(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.lost("Renew of a claim that was never made", a.Renew(e.ctx, c))
	e.free(b, key)
	e.acquire(a, c)
	e.release(a, c)
}

// covers: B5, C11, G5
func renewRacesRelease(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	began := time.Now()
	for n := 0; n < 20 || n < 100 && time.Since(began) < patience; n++ { // the store may be slow
		c := e.claim(key)
		c.NoneInFlight = true // as the locker releases: the renewal in flight is no attempt
		e.acquire(a, c)
		parallel(3, func(i int) {
			switch i {
			case 0:
				if _, err := a.Release(e.ctx, c); err != nil {
					e.Errorf("Release = %v", err)
				}
			default:
				if err := []backend.Backend{a, b}[i-1].Renew(e.ctx,
					c); backend.AnswerOf(err) == backend.Unknown {
					e.Errorf("Renew = %v, want nil or ErrLost", err)
				}
			}
		})
		e.free(b, key)
	}
}
