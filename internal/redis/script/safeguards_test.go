package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A release after the end of the lease says that the hold was lost, also while the key is there and nobody else took it.
//
// covers: I1, B8
func TestReleaseAfterTheEndIsLost(t *testing.T) {
	const ttl = 20 * time.Millisecond
	late := func(r rig, c backend.Claim) {
		t.Helper()
		c.Key, c.TTL = r.key, ttl
		for _, unknown := range []bool{false, true} { // the second one finds nothing
			c.NoneInFlight = !unknown
			err := DecodeRelease(r.evalKeys(r.l.Scripts().Release, r.l.Release(c)))
			if !errors.Is(err, backend.ErrLost) {
				t.Errorf("%s, a release after the end of the lease: %v, want ErrLost", c.ID(), err)
			}
			if ranOut := strings.Contains(err.Error(), "run out"); !unknown && ranOut == r.l.dialect {
				t.Errorf("%s: %v", c.ID(), err)
			}
		}
	}
	grant := func(r rig, c backend.Claim, ttl time.Duration) {
		t.Helper()
		c.Key, c.TTL = r.key, ttl
		if _, err := DecodeAcquire(r.evalKeys(r.l.Scripts().Acquire, r.l.Acquire(c)), c); err != nil {
			t.Fatal(err)
		}
	}
	dialect, err := Dialect("", 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		l     Layout
		c     backend.Claim
		queue []string
	}{
		"alone": {l: layout(t), c: plainClaim("a")}, "before one": {l: layout(t), c: plainClaim("a"), queue: []string{"b"}},
		"before two": {l: layout(t), c: plainClaim("a"), queue: []string{"b", "c"}},
		"reader":     {l: layout(t), c: reader("a")}, "permit": {l: layout(t), c: permit("a", 2)},
		"re-entrant": {l: layout(t), c: entrant("o", "a")}, "dialect": {l: dialect, c: plainClaim("a")},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.l = test.l
			if len(test.queue) == 0 {
				grant(r, test.c, ttl)
				r.lapse(ttl)
			} else {
				grant(r, test.c, minute)
				for i, owner := range test.queue {
					_ = r.refused(queued(owner), i+1)
				}
				r.ended("x")
			}
			late(r, test.c)
			if len(test.queue) > 0 {
				if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Owner != test.queue[0] {
					t.Errorf("%+v, want %s to hold", s, test.queue[0])
				}
			}
		})
	}
}

// A counter that is ahead of the clock is not forgotten before the clock has caught up, on whichever way a script goes: the
// key lives for as long. And grants do not take it further ahead: a reserve ends within NEAR of the clock.
//
// covers: K1, K2
func TestCounterAheadOfTheClock(t *testing.T) {
	const ahead = 1000 * time.Second
	ways := map[string]func(r rig, counter int64){
		"a free lock": func(r rig, counter int64) {
			r.set(fmt.Sprint("h2 ", counter))
			r.granted(plainClaim("a"))
		},
		"a free hash": func(r rig, counter int64) {
			r.set("v", "h2", "f", fmt.Sprint(counter))
			r.granted(plainClaim("a"))
		},
		"a place behind a holder": func(r rig, counter int64) {
			r.set(fmt.Sprint("h2 ", counter, " 60000 holder 1 "))
			_ = r.refused(queued("a"), 1)
		},
		"a place in the queue": func(r rig, counter int64) {
			held(r, counter, 1)
			_ = r.refused(queued("a"), 2)
		},
		"a hand-over to the last": func(r rig, counter int64) {
			held(r, counter, 1)
			r.dropped(plainClaim("holder"))
		},
		"a hand-over before others": func(r rig, counter int64) {
			held(r, counter, 2)
			r.dropped(plainClaim("holder"))
		},
		"a release": func(r rig, counter int64) {
			r.set(fmt.Sprint("h2 ", counter-1, " 60000 a 1 "))
			r.srv.MustDo("PEXPIRE", r.l.Key(r.key), "120000")
			r.granted(plainClaim("a")) // a repeat, which gives the key its time
			r.dropped(plainClaim("a"))
		},
		"a reader": func(r rig, counter int64) {
			r.set(fmt.Sprint("h2 ", counter))
			r.granted(reader("a"))
		},
	}
	for name, way := range ways {
		r := newRig(t)
		counter := r.ms()*1000 + ahead.Microseconds()
		way(r, counter)
		if s := r.state(); s.Token < uint64(counter-1) || s.Token > uint64(counter)+2 {
			t.Errorf("%s: the last token is %d after %d", name, s.Token, counter)
		}
		if left := r.left(); left < 2*ahead.Milliseconds()-10_000 {
			t.Errorf("%s: the counter is gone in %d ms, before the clock has caught up", name, left)
		}
	}
}

// held stores a hold of "holder" and n places.
func held(r rig, counter int64, n int) {
	r.t.Helper()
	ends := r.now() + 60_000
	fields := []string{
		"v", "h2", "f", fmt.Sprint(counter), "o", "holder", "x", fmt.Sprint(ends), "b", "1", "m", "",
		"g", fmt.Sprintf("- 0 0 0 0 0 %d 1 %d %d 0", ends+1000, n, n),
	}
	for i := 1; i <= n; i++ {
		fields = append(fields, fmt.Sprint("q:", i), fmt.Sprintf("%d 60000 me x 60000 w%d 1000 {}", ends, i),
			fmt.Sprintf("w:w%d", i), fmt.Sprint(i))
	}
	r.set(fields...)
	r.srv.MustDo("PEXPIRE", r.l.Key(r.key), "122000")
}

// A reserve is cut where it would end more than 10 ms ahead of the clock, also by the short ways, and no sooner.
//
// covers: K1
func TestReserveEndsNearTheClock(t *testing.T) {
	const far = 8 * time.Second // the test's clock may be as much behind the script's: the counter is on the near side of it
	for name, way := range map[string]func(r rig, counter int64){
		"acquire": func(r rig, counter int64) {
			r.set(fmt.Sprint("h2 ", counter))
			c := plainClaim("w1")
			c.Reserve = 1000
			r.granted(c)
		},
		"hand-over to the last":   func(r rig, counter int64) { held(r, counter, 1); r.dropped(plainClaim("holder")) },
		"hand-over before others": func(r rig, counter int64) { held(r, counter, 2); r.dropped(plainClaim("holder")) },
	} {
		r := newRig(t)
		way(r, r.ms()*1000-far.Microseconds())
		near := r.state()
		if reserved := int64(near.Token) - int64(near.Holders[0].Token) + 1; reserved != 1000 {
			t.Errorf("%s: %d tokens with a counter behind the clock, want 1000", name, reserved)
		}
		r = newRig(t)
		way(r, r.ms()*1000+far.Microseconds())
		s := r.state()
		if reserved := int64(s.Token) - int64(s.Holders[0].Token) + 1; reserved != 1 {
			t.Errorf("%s: %d tokens with a counter ahead of the clock, want one", name, reserved)
		}
	}
}

// A minimum token raises the token up to a quarter of the TTL beyond the clock, and no further.
//
// covers: K1
func TestMinimumTokenIsBounded(t *testing.T) {
	dialect, err := Dialect("", 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]func(r *rig){
		"nothing": func(*rig) {}, "a string": func(r *rig) { r.set("h2 5") }, "a hash": func(r *rig) { r.set("v", "h2", "f", "5") },
		"dialect": func(r *rig) { r.l = dialect },
	} {
		for _, over := range []time.Duration{5 * time.Second, time.Hour} {
			r := newRig(t)
			set(&r)
			before := r.ms() * 1000
			c := plainClaim("a")
			c.Key, c.TTL, c.Reserve = r.key, minute, 100
			c.MinToken = uint64(before + over.Microseconds())
			g, err := DecodeAcquire(r.evalKeys(r.l.Scripts().Acquire, r.l.Acquire(c)), c)
			after := (r.ms() + 1) * 1000
			least, most := before+min(over, minute/4).Microseconds(), after+min(over, minute/4).Microseconds()
			if err != nil || int64(g.Token) < least || int64(g.Token) > most || g.Reserved != 100 {
				t.Errorf("%s, a minimum of %v ahead: %+v, %v; want %d to %d", name, over, g, err, least, most)
			}
		}
	}
}

// A lease that is over is neither renewed, nor released with a yes: also where others wait, and with a tombstone.
//
// covers: I1, B8
func TestEndedLeaseBeforeAQueue(t *testing.T) {
	for what, end := range map[string]func(r rig, c backend.Claim) error{
		"renew":   func(r rig, c backend.Claim) error { return DecodeRenew(r.eval(own.Renew, r.l.Renew(c)...)) },
		"release": func(r rig, c backend.Claim) error { return DecodeRelease(r.eval(own.Release, r.l.Release(c)...)) },
	} {
		r := newRig(t)
		c := plainClaim("a")
		c.Key, c.TTL = r.key, minute
		r.granted(c)
		_ = r.refused(queued("b"), 1)
		r.ended("x")
		if err := end(r, c); !errors.Is(err, backend.ErrLost) {
			t.Errorf("%s after the end of the lease: %v, want ErrLost", what, err)
		}
		if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Owner != "b" {
			t.Errorf("%s: %+v, want b to hold", what, s)
		}
	}
}
