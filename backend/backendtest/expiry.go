package backendtest

import (
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var expiryRules = []rule{
	{
		name: "expiry/not-early", run: expiryNotEarly,
		why: "The holder believes in its lease until shortly before its end, counted from before " +
			"it asked. A TTL may be rounded" +
			" up, never down: a lease that ends early has two holders. (Truncating to " +
			"milliseconds or seconds does it.)",
	},
	{
		name: "expiry/renewal-not-early", run: renewalNotEarly,
		why: "A renewal promises a whole TTL from when it was sent, as the grant did.",
	},
	{
		name: "expiry/ends", run: expiryEnds,
		why: "A holder that died blocks others for its lease and no longer.",
	},
	{
		name: "expiry/apart", run: expiryApart,
		why: "Each hold has a lease of its own. One that ends, or is renewed, says nothing " +
			"about another" +
			" (a shared lease is kept alive by whoever is left).",
	},
	{
		name: "expiry/client-gone", run: expiryClientGone,
		why: "A lease does not depend on the client that took it: Close is not Release, and a " +
			"crash is not either.",
	},
}

var tookOverRules = []rule{
	{
		name: "took-over/told", run: tookOver, needs: backend.Capabilities{
			TookOver: true,
			Fencing:  true,
		},
		why: "A holder that died leaves its work half done, and whoever comes next may have to " +
			"look after it: as a robust mutex" +
			" says EOWNERDEAD. After a release, or a release by force, it need not.",
	},
}

// odd are leases that a store which counts in milliseconds or seconds has to round.
func (e *env) odd() []time.Duration {
	least := e.caps.MinTTL
	if !e.h.Bubble {
		least *= time.Duration(math.Round(slowness))
	}
	return []time.Duration{
		least, least + 1, least + 999*time.Microsecond, least + least/2 +
			700*time.Microsecond, 2*least - 1,
	}
}

// rounds is how often a lease is waited for: once where that takes seconds.
func (e *env) rounds() int {
	if slowLeases(e.caps) {
		return 1
	}
	return 3
}

// covers: I1, A13, A6
func expiryNotEarly(e *env) {
	a, b := e.open(), e.open()
	for i, ttl := range e.odd() {
		for round := range e.rounds() {
			c, g, sent := e.acquireFor(ttl, a, e.key(fmt.Sprint(i, round)))
			if g.TTL < ttl {
				e.Errorf("asked for a lease of %v, granted %v", ttl, g.TTL)
			}
			e.aside(func() { e.notBefore(b, c.Key, sent, ttl) })
		}
	}
}

// acquireFor must grant a claim for ttl, which may be short: where the machine paused for longer
// than that before the answer, another claim is to be granted.
func (e *env) acquireFor(ttl time.Duration, b backend.Backend,
	key string,
) (c backend.Claim, g backend.Grant, sent time.Time) {
	e.Helper()
	for tries := 1; ; tries++ {
		c = e.claim(key)
		c.TTL, sent = ttl, time.Now()
		g, err := b.TryAcquire(e.ctx, c)
		took := time.Since(sent)
		e.forget(b, c)
		if err == nil {
			return c, g, sent
		}
		if took < ttl || tries == 5 {
			e.Fatalf("TryAcquire(%s) for %v = %v after %v, want a grant", short(key), ttl, err,
				took)
		}
		_, _ = b.Release(e.ctx, c)
		e.pause(ttl + patience/10) // what is left of it
	}
}

// covers: I1
func renewalNotEarly(e *env) {
	a, b := e.open(), e.open()
	for i, ttl := range e.odd() {
		c, _, _ := e.acquireFor(ttl, a, e.key(fmt.Sprint(i)))
		var sent time.Time
		if err := e.answered(func() error {
			sent = time.Now()
			return a.Renew(e.ctx, c)
		}); err != nil {
			e.lost("Renew", err) // the machine paused for longer than the lease
			continue
		}
		e.aside(func() { e.notBefore(b, c.Key, sent, ttl) })
	}
}

// notBefore fails if key is granted to another before ttl has passed since sent. It is sound on a
// machine that is slow: the store began the lease after sent, and the grant was seen after it was
// made. It may be called from any goroutine.
func (e *env) notBefore(b backend.Backend, key string, sent time.Time, ttl time.Duration) {
	e.Helper()
	const clocks = 1000 // two clocks of one machine may differ in speed by a thousandth
	for step := max(ttl/100, 10*time.Microsecond); ; e.pause(step) {
		next := e.claim(key)
		next.NoneInFlight = true
		_, err := b.TryAcquire(e.ctx, next)
		took := time.Since(sent)
		if err == nil {
			if took < ttl-ttl/clocks {
				e.broken("a lease of %v was over after %v", ttl, took)
			}
			if _, err := b.Release(e.ctx, next); err != nil {
				e.Errorf("Release(%s) = %v, want nil: it held until now", short(key), err)
			}
			return
		}
		e.is("TryAcquire of a held key", err, backend.ErrHeld)
		if limit := 20*ttl + patience; took > limit || e.Failed() {
			e.Errorf("a lease of %v still blocks after %v", ttl, took)
			return
		}
	}
}

// covers: G6, B12
func expiryEnds(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	sent := time.Now()
	g := e.acquire(a, e.brief(key))
	e.takeOver(b, e.claim(key))
	if took := time.Since(sent); took > g.TTL+patience/2 {
		e.Errorf("a lease of %v blocked for %v", g.TTL, took)
	}
}

// covers: B15, B9
func expiryApart(e *env) {
	a, b := e.open(), e.open()
	brief, long := e.brief(e.key("brief")), e.claim(e.key("long"))
	e.acquire(a, long)
	e.acquire(a, brief)
	e.renewed(a, long)
	e.ranOut(b, brief)
	e.held(b, e.claim(long.Key))
	e.renewed(a, long)
}

// covers: G6, C10
func expiryClientGone(e *env) {
	a, b := e.h.Open(e), e.open()
	brief, long := e.brief(e.key("brief")), e.claim(e.key("long"))
	e.acquire(a, brief)
	e.acquire(a, long)
	if err := a.Close(); err != nil {
		e.Fatalf("Close = %v", err)
	}
	e.held(b, e.claim(long.Key))
	e.takeOver(b, e.claim(brief.Key))
	e.held(b, e.claim(long.Key))
	e.release(b, long) // whoever knows the owner may release, from any client
}

// covers: G6
func tookOver(e *env) {
	a, b := e.open(), e.open()
	next := map[string]backend.Claim{"asks": e.claim(e.key("asks"))}
	if e.caps.Queue {
		next["waits"] = e.inLine(e.key("waits"))
	}
	for how, c := range next {
		dead := e.brief(c.Key)
		dead.Reserve = 3
		g := e.acquire(a, dead)
		if g.TookOver != 0 {
			e.Errorf("%s: TookOver = %d, and nobody held before", how, g.TookOver)
		}
		if got, last := e.takeOver(b, c).TookOver, g.Token+
			uint64(max(g.Reserved, 1))-1; got != last {
			e.Errorf("%s: TookOver = %d after a hold of tokens %d to %d, whose lease ran out", how,
				got, g.Token, last)
		}
		behind := e.claim(c.Key)
		if c.Queue {
			behind = e.inLine(c.Key)
			e.stand(a, behind, 1)
		}
		e.release(b, c)
		if g = e.acquire(a, behind); g.TookOver != 0 {
			e.Errorf("%s: TookOver = %d after a hold that was released", how, g.TookOver)
		}
		if !e.forcible(b, e.key("free")) {
			continue
		}
		e.seize(b, c.Key, g.Token)
		if g := e.acquire(b, e.claim(c.Key)); g.TookOver != 0 {
			e.Errorf("%s: TookOver = %d after a hold that was ended by force", how, g.TookOver)
		}
	}
}
