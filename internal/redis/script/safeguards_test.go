package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A release after the end of the lease says that the hold was lost, also while the key is there and
// nobody else took it. One of a holder that believes in its hold (NoneInFlight) need not look, if
// nobody has held since: see Backend.Release.
//
// covers: I1, B8
func TestReleaseAfterTheEndIsLost(t *testing.T) {
	const ttl = 20 * time.Millisecond
	late := func(r rig, c backend.Claim, believed bool, order ...bool) {
		t.Helper()
		c.Key, c.TTL = r.key, ttl
		for i, unknown := range order { // the second one finds nothing
			c.NoneInFlight = !unknown
			_, err := DecodeRelease(r.send(r.l.Release(c)))
			if i == 0 && !unknown && believed {
				if err != nil {
					t.Errorf("%s, a release of one who believes in its hold: %v", c.ID(), err)
				}
				continue
			}
			if !errors.Is(err, backend.ErrLost) {
				t.Errorf("%s, a release after the end of the lease: %v, want ErrLost", c.ID(), err)
			}
			if ranOut := strings.Contains(fmt.Sprint(err), "run out"); i == 0 &&
				ranOut == r.l.isDialect() {
				t.Errorf("%s: %v", c.ID(), err)
			}
		}
	}
	grant := func(r rig, c backend.Claim, ttl time.Duration) {
		t.Helper()
		c.Key, c.TTL = r.key, ttl
		if _, err := DecodeAcquire(r.send(r.l.Acquire(c)), c); err != nil {
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
		"alone": {l: layout(t), c: plainClaim("a")}, "before one": {
			l: layout(t),
			c: plainClaim("a"), queue: []string{"b"},
		},
		"before two": {l: layout(t), c: plainClaim("a"), queue: []string{"b", "c"}},
		"reader":     {l: layout(t), c: reader("a")}, "permit": {l: layout(t), c: permit("a", 2)},
		"re-entrant": {l: layout(t), c: entrant("o", "a")}, "dialect": {
			l: dialect,
			c: plainClaim("a"),
		},
	} {
		for _, unknown := range []bool{false, true} {
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
			late(r, test.c, name == "alone", unknown, !unknown)
			if len(test.queue) > 0 {
				if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Owner != test.queue[0] {
					t.Errorf("%s: %+v, want %s to hold", name, s, test.queue[0])
				}
			}
		}
	}
	// Whoever has held since: also where all is free again.
	for _, unknown := range []bool{false, true} {
		r := newRig(t)
		grant(r, plainClaim("a"), ttl)
		r.lapse(ttl)
		grant(r, plainClaim("b"), minute)
		b := plainClaim("b")
		b.Key, b.TTL, b.NoneInFlight = r.key, minute, true
		if err := r.tryRelease(b); err != nil {
			t.Fatal(err)
		}
		c := plainClaim("a")
		c.Key, c.TTL, c.NoneInFlight = r.key, ttl, !unknown
		if err := r.tryRelease(c); !errors.Is(err, backend.ErrLost) {
			t.Errorf("a release after another has held: %v, want ErrLost", err)
		}
	}
}

// A counter that is ahead of the clock is not forgotten before the clock has caught up, on
// whichever way a script goes: the key lives for as long. And grants do not take it further ahead:
// a reserve ends within NEAR of the clock.
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
		"v", "h2", "f", fmt.Sprint(counter), "o", "holder", "x", fmt.Sprint(ends), "b", "1", "m",
		"",
	}
	if n > 0 {
		fields = append(fields, "g", fmt.Sprintf("- 0 0 0 0 0 %d 1 %d %d 0", ends+1000, n, n))
	}
	for i := 1; i <= n; i++ {
		fields = append(fields, fmt.Sprint("q:", i),
			fmt.Sprintf("%d 60000 me x 60000 w%d 1000 {}", ends, i),
			fmt.Sprintf("w:w%d", i), fmt.Sprint(i))
	}
	r.set(fields...)
	r.srv.MustDo("PEXPIRE", r.l.Key(r.key), "122000")
}

// A reserve is cut where it would end more than 10 ms ahead of the clock, also by the short ways,
// and no sooner.
//
// covers: K1
func TestReserveEndsNearTheClock(t *testing.T) {
	// The test's clock may be as much behind the script's: the counter is on the near side of it.
	const far = 8 * time.Second
	for name, way := range map[string]func(r rig, counter int64){
		"acquire": func(r rig, counter int64) {
			r.set(fmt.Sprint("h2 ", counter))
			c := plainClaim("w1")
			c.Reserve = 1000
			r.granted(c)
		},
		"hand-over to the last": func(r rig, counter int64) {
			held(r, counter, 1)
			r.dropped(plainClaim("holder"))
		},
		"hand-over before others": func(r rig, counter int64) {
			held(r, counter, 2)
			r.dropped(plainClaim("holder"))
		},
	} {
		r := newRig(t)
		clock := r.ms() * 1000
		way(r, clock-far.Microseconds())
		near := r.state()
		if int64(near.Holders[0].Token) < clock {
			t.Errorf("%s: token %d is behind the clock, %d", name, near.Holders[0].Token, clock)
		}
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
		"nothing": func(*rig) {}, "a string": func(r *rig) {
			r.set("h2 5")
		}, "a hash": func(r *rig) { r.set("v", "h2", "f", "5") },
		"dialect": func(r *rig) { r.l = dialect },
	} {
		for _, over := range []time.Duration{5 * time.Second, time.Hour} {
			r := newRig(t)
			set(&r)
			before := r.ms() * 1000
			c := plainClaim("a")
			c.Key, c.TTL, c.Reserve = r.key, minute, 100
			c.MinToken = uint64(before + over.Microseconds())
			g, err := DecodeAcquire(r.send(r.l.Acquire(c)), c)
			after := (r.ms() + 1) * 1000
			least, most := before+min(over, minute/4).Microseconds(), after+
				min(over, minute/4).Microseconds()
			if err != nil || int64(g.Token) < least || int64(g.Token) > most || g.Reserved != 100 {
				t.Errorf("%s, a minimum of %v ahead: %+v, %v; want %d to %d", name, over, g, err,
					least, most)
			}
		}
	}
}

// A token is above the last one also where that is what the claim asks for at least.
//
// covers: K3
func TestMinimumTokenThatWasGiven(t *testing.T) {
	dialect, err := Dialect("", 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]func(r *rig, last string){
		"a string": func(r *rig, last string) { r.set("h2 " + last) },
		"a hash":   func(r *rig, last string) { r.set("v", "h2", "f", last) },
		"dialect": func(r *rig, last string) {
			r.l = dialect
			r.srv.MustDo("SET", sideKey(dialect.Key(r.key)), "h2 "+last+" 1 x 0 ", "PX", "120000")
		},
	} {
		r := newRig(t)
		last := uint64(r.ms()*1000 + (5 * time.Second).Microseconds())
		set(&r, fmt.Sprint(last))
		c := plainClaim("a")
		c.MinToken = last
		if g, err := r.tryAcquire(c); err != nil || g.Token != last+1 {
			t.Errorf("%s: %+v, %v after token %d, which was the minimum", name, g, err, last)
		}
	}
}

// Whatever is over is taken by whoever asks, in each form that a lock may have.
//
// covers: I1, B1
func TestTakesWhatIsOver(t *testing.T) {
	for name, c := range map[string]backend.Claim{
		"a try": plainClaim("b"), "a claim that queues": queued("b"), "a reader": reader("b"),
		"a permit": permit("b", 2),
	} {
		r := newRig(t)
		const last uint64 = 1700000000000000
		// It expires in 2 min, all of that margin.
		r.set(fmt.Sprintf("h2 %d %d other 1 ", last, minute.Milliseconds()*2))
		if g := r.granted(c); g.Token <= last {
			t.Errorf("%s on a string: token %d", name, g.Token)
		}
		r = newRig(t)
		held(r, 5, 0)
		r.ended("x")
		if g := r.granted(c); g.Token < 6 {
			t.Errorf("%s on a hash: token %d", name, g.Token)
		}
		if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Owner != "b" {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// The key outlives every lease and every place by the retention, and is never given less time than
// it has.
//
// covers: R10, K2
func TestKeyOutlivesAll(t *testing.T) {
	const long = time.Hour
	patient := func(c backend.Claim, d time.Duration) backend.Claim {
		c.TTL, c.WaiterTTL = minute, d // a longer TTL would make the retention longer
		return c
	}
	for name, way := range map[string]func(r rig){
		"the first place": func(r rig) {
			r.granted(plainClaim("h"))
			_ = r.refused(patient(queued("a"), long), 1)
		},
		"the second place": func(r rig) {
			held(r, 5, 1)
			_ = r.refused(patient(queued("a"), long), 2)
		},
		"a reader's place": func(r rig) {
			held(r, 5, 1)
			_ = r.refused(patient(reader("a"), long), 2)
		},
		"a reader": func(r rig) {
			c := reader("a")
			c.TTL = long
			r.granted(reader("r"))
			r.granted(c)
		},
		"a heartbeat": func(r rig) {
			held(r, 5, 2)
			c := patient(queued("w2"), long)
			c.Key = r.key
			r.beats("w2", []bool{true}, c)
		},
		"a heartbeat among readers": func(r rig) {
			r.granted(reader("r"))
			_ = r.refused(queued("w"), 1)
			c := patient(queued("w"), long)
			c.Key = r.key
			r.beats("w", []bool{true}, c)
		},
		"a hand-over": func(r rig) {
			r.granted(plainClaim("h"))
			c := queued("a")
			c.TTL, c.WaiterTTL = long, long
			_ = r.refused(c, 1)
			_ = r.refused(queued("b"), 2)
			r.srv.MustDo("HSET", r.l.Key(r.key), "g",
				fmt.Sprintf("- 0 0 0 0 0 %d 1 2 2 0", r.ms()+1))
			r.srv.MustDo("PEXPIRE", r.l.Key(r.key), "70000")
			r.dropped(plainClaim("h"))
		},
		"a renewal": func(r rig) {
			held(r, 5, 1)
			c := backend.Claim{Key: r.key, Owner: "holder", TTL: long}
			if err := DecodeRenew(r.send(r.l.Renew(c))); err != nil {
				t.Error(err)
			}
		},
		"a reader's renewal": func(r rig) {
			c := reader("a")
			r.granted(c)
			c.Key, c.TTL = r.key, long
			if err := DecodeRenew(r.send(r.l.Renew(c))); err != nil {
				t.Error(err)
			}
		},
	} {
		r := newRig(t)
		way(r)
		if left := r.left(); left < (long+
			layout(t).Keep(backend.Claim{TTL: minute})).Milliseconds()-5000 {
			t.Errorf("%s: the key lives for %d ms, and something lasts an hour", name, left)
		}
	}
	r := newRig(t)
	r.granted(reader("h"))
	c := queued("a")
	c.TTL = long
	_ = r.refused(c, 1)
	r.dropped(reader("h"))
	// As long as leases of an hour are to be remembered.
	if left := r.left(); left < layout(t).Keep(c).Milliseconds() {
		t.Errorf("handed over to one with leases of an hour: the key lives for %d ms, "+
			"want %v at least", left, layout(t).Keep(c))
	}
	for name, c := range map[string]backend.Claim{
		"the first place": queued("a"),
		"a reader's":      reader("a"),
	} {
		r := newRig(t)
		r.granted(plainClaim("h"))
		had := r.left()
		c.TTL, c.WaiterTTL = time.Second, time.Second
		_ = r.refused(c, 1)
		if left := r.left(); left < had-10_000 || left > had {
			t.Errorf("%s, of a shorter lease: the key lives for %d ms, and had %d", name, left, had)
		}
	}
	r = newRig(t)
	held(r, 5, 1)
	r.srv.MustDo("PEXPIRE", r.l.Key(r.key), "61000")
	_ = r.release("stranger", false)
	if left := r.left(); left < 2*minute.Milliseconds() {
		t.Errorf("the key lives for %d ms, and has a tombstone for two minutes", left)
	}
	const longer = 100 * time.Hour
	for name, way := range map[string]func(r rig){
		"a place":     func(r rig) { _ = r.refused(patient(queued("a"), long), 2) },
		"a reader":    func(r rig) { _ = r.refused(patient(reader("a"), long), 2) },
		"a heartbeat": func(r rig) { r.beats("w1", []bool{true}, patient(queued("w1"), long)) },
		"a hand-over": func(r rig) { r.dropped(plainClaim("holder")) },
		"a renewal": func(r rig) {
			_ = DecodeRenew(r.send(r.l.Renew(backend.Claim{
				Key: r.key, Owner: "holder",
				TTL: minute,
			})))
		},
		"a tombstone":            func(r rig) { _ = r.release("stranger", false) },
		"the last place is left": func(r rig) { _ = r.drop(queued("w1")) },
	} {
		r := newRig(t)
		held(r, 5, 1)
		if name == "a hand-over" {
			held(r, 5, 2)
		}
		r.srv.MustDo("PEXPIRE", r.l.Key(r.key), fmt.Sprint(longer.Milliseconds()))
		way(r)
		if left := r.left(); left < longer.Milliseconds()-10_000 {
			t.Errorf("%s: the key lives for %d ms, and had %v", name, left, longer)
		}
	}
}

// Out of memory nothing is granted and no place is given, and what was there stays as it was;
// whoever has something keeps it and gives it back.
//
// covers: R6
func TestOutOfMemory(t *testing.T) {
	states := map[string]func(r rig){
		"nothing": func(rig) {}, "free": func(r rig) { r.set("h2 5") },
		"held":  func(r rig) { r.granted(plainClaim("holder")) },
		"queue": func(r rig) { r.granted(plainClaim("holder")); _ = r.refused(queued("w1"), 1) },
		"two":   func(r rig) { held(r, 5, 2) }, "readers": func(r rig) { r.granted(reader("r1")) },
	}
	for name, state := range states {
		for _, c := range []backend.Claim{
			queued("a"), reader("a"), permit("a", 2),
			entrant("a", "a1"),
		} {
			r := newRig(t)
			state(r)
			before := r.stored()
			r.srv.MustDo("CONFIG", "SET", "maxmemory", "1")
			c.Key, c.TTL = r.key, minute
			reply, err := r.srv.Do(words(r.l.For("me").Acquire(c))...)
			r.srv.MustDo("CONFIG", "SET", "maxmemory", "0")
			if err == nil || !errors.Is(ServerError(err.Error()), backend.ErrUnavailable) {
				t.Errorf("%s, %v: %v, %v; want a refusal", name, c, reply, err)
			}
			if after := r.stored(); after != before {
				t.Errorf("%s: %s\nbecame %s", name, before, after)
			}
		}
		if name == "nothing" || name == "free" || name == "readers" {
			continue
		}
		for _, together := range []bool{false, true} {
			r := newRig(t)
			state(r)
			r.srv.MustDo("CONFIG", "SET", "maxmemory", "1")
			renewed := DecodeRenew(r.send(r.l.Renew(backend.Claim{Owner: "holder", TTL: minute})))
			c := plainClaim("holder")
			c.TTL = minute
			c.NoneInFlight = name != "two"
			held := false
			if together {
				held = r.releaseAll(c, plainClaim("stranger"))[0]
			} else {
				held = released(r.send(r.l.Release(c))) == nil
			}
			r.srv.MustDo("CONFIG", "SET", "maxmemory", "0")
			if renewed != nil || !held {
				t.Errorf("%s: renewed %v, released %v", name, renewed, held)
			}
			if s := r.state(); len(s.Holders) > 0 && s.Holders[0].Owner != "w1" ||
				len(s.Holders) == 0 && name != "held" {
				t.Errorf("%s: %+v after the release", name, s)
			}
		}
	}
}

// A reader whose lease is over, and whose slot no purge has come to yet, is let in again once and
// not twice.
//
// covers: R10, B15
func TestHoldIsNotCountedTwice(t *testing.T) {
	r := newRig(t)
	for i := range 300 {
		r.granted(reader(fmt.Sprint("r", i)))
	}
	for i := range 300 {
		r.ended(fmt.Sprint("h:r", i))
	}
	r.granted(reader("r0"))
	for range 5 {
		r.granted(reader("r0"))
	}
	if s := r.state(); len(s.Holders) != 1 || strings.Count("\n"+r.stored(), "\nk:") != 1 {
		t.Errorf("%+v and %d slots, want r0 alone", s.Holders,
			strings.Count("\n"+r.stored(), "\nk:"))
	}
	r.dropped(reader("r0"))
	r.granted(plainClaim("w"))
}

// A tombstone outlives a hand-over and a place that is given, whichever form the lock takes.
//
// covers: A4
func TestTombstoneOutlivesOthers(t *testing.T) {
	for name, way := range map[string]func(r rig){
		"a hand-over to the last":   func(r rig) { held(r, 5, 1) },
		"a hand-over before others": func(r rig) { held(r, 5, 2) },
		"a release":                 func(r rig) { held(r, 5, 0) },
	} {
		r := newRig(t)
		way(r)
		_ = r.refused(queued("late"), max(1, strings.Count(r.stored(), "w:")+1))
		if err := r.release("late", false); !errors.Is(err, backend.ErrLost) {
			t.Fatal(err)
		}
		_ = r.refusedOrNot(queued("w1"))
		r.dropped(plainClaim("holder"))
		if _, err := r.ask(queued("late")); !errors.Is(err, backend.ErrLost) {
			t.Errorf("%s: an attempt that was released, and comes late: %v, want ErrLost", name,
				err)
		}
	}
}

// refusedOrNot asks, whatever the answer.
func (r rig) refusedOrNot(c backend.Claim) error {
	_, err := r.ask(c)
	return err
}

// Counters that contradict each other are refused by every verb on every way, and stay as they are.
//
// covers: I2, R23
func TestDamagedGroup(t *testing.T) {
	future := newRig(t).now() + 60_000
	hold := fmt.Sprint(future, " 7  reader {}")
	place := fmt.Sprint(future, " 60000 me x 60000 w1 1 {}")
	for name, test := range map[string]struct {
		group string
		owner bool
	}{
		"one owner and several":        {"s 0 1 1 0 0 1 1 1 1 0", true},
		"holders of no mode":           {"- 0 1 1 0 0 1 1 1 1 0", false},
		"a mode without holders":       {"s 0 0 1 0 0 1 1 1 1 0", true},
		"nobody at all":                {"- 0 0 0 0 0 1 1 1 0 0", true},
		"an owner and a reader":        {"s 0 1 9999999999999 0 0 1 1 1 1 0", true},
		"more unseen than hold":        {"s 0 1 1 2 0 1 1 1 1 0", false},
		"too many holders":             {"s 0 1000000001 1 0 0 1 1 1 1 0", false},
		"a queue from 0":               {"- 0 0 0 0 0 1 0 1 1 0", true},
		"a queue without end":          {"- 0 0 0 0 0 1 1 10000000000001 1 0", true},
		"more wait than there are":     {"- 0 0 0 0 0 1 1 1 2 0", true},
		"more for permits than wait":   {"- 1 0 0 0 0 1 1 1 1 2", true},
		"permits without a limit":      {"p 0 1 1 0 0 1 1 1 1 0", false},
		"places for no permits":        {"- 0 0 0 0 0 1 1 1 1 1", true},
		"a weight that is left out":    {"p 5 1*1 1 0 0 1 1 1 1 0", false},
		"a weight over the limit":      {"p 5 1*6 1 0 0 1 1 1 1 0", false},
		"a weight of readers":          {"s 5 1*2 1 0 0 1 1 1 1 0", false},
		"a weight of nobody":           {"- 5 0*2 0 0 0 1 1 1 1 0", true},
		"a weight without holders":     {"p 5 0*2 0 0 0 1 1 1 1 0", true},
		"a weight that is none":        {"p 5 1* 1 0 0 1 1 1 1 0", false},
		"two weights":                  {"p 5 1*2*2 1 0 0 1 1 1 1 0", false},
		"a weight of something else":   {"p 5 1 1*2 0 0 1 1 1 1 0", false},
		"a weight, and damage":         {"p 5 1*2 1 0 0 1 1 1 1 x", false},
		"a number too many":            {"p 5 1 1 0 0 1 1 1 1 0 2", false},
		"a time that is too late":      {"- 0 0 0 0 0 9007199254740992 1 1 1 0", true},
		"soonest that is too late":     {"s 0 1 9007199254740992 0 0 1 1 1 1 0", false},
		"a number that is none":        {"- 0 0 0 0 0 x 1 1 1 0", true},
		"a number that is missing":     {"- 0 0 0 0 0 1 1 1 1", true},
		"another mode":                 {"x 0 1 1 0 0 1 1 1 1 0", false},
		"a number that is not in full": {"- 0 0 0 0 0 1 1 1 1 1.5", true},
	} {
		r := newRig(t)
		fields := []string{
			"v", "h2", "f", "7", "g", test.group, "q:1", place, "w:w1", "1", "k:1",
			hold, "h:reader", "1",
		}
		if test.owner {
			fields = append(fields, "o", "holder", "x", fmt.Sprint(future), "m", "", "b", "1")
		}
		r.set(fields...)
		before := r.stored()
		var claims []backend.Claim
		for _, owner := range []string{"holder", "reader", "w1", "new"} {
			c := queued(owner)
			c.Key, c.TTL, c.NoneInFlight = r.key, minute, true
			claims = append(claims, c)
		}
		for _, c := range claims {
			for verb, reply := range map[string]any{
				"acquire": r.send(r.l.Acquire(c)), "renew": r.send(r.l.Renew(c)),
				"release": r.send(r.l.Release(c)), "heartbeat": r.send(r.l.Heartbeat(claims)),
				"releaseall": r.send(r.l.ReleaseAll(claims)),
			} {
				if _, code := open(reply); code != codeForeign {
					t.Errorf("%s, %s of %s: %v, want to be refused", name, verb, c.Owner, reply)
				}
			}
		}
		if s, err := r.inspect(); !errors.Is(err, backend.ErrForeign) {
			t.Errorf("%s, inspect: %+v, %v, want to be refused", name, s, err)
		}
		if after := r.stored(); after != before {
			t.Errorf("%s: %s\nbecame %s", name, before, after)
		}
	}
}

// A renewal neither shortens a lease nor revives one that is over, though nobody took the key
// since.
//
// covers: I1, B8
func TestRenewalOnlyGrows(t *testing.T) {
	dialect, err := Dialect("", 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		l     Layout
		c     backend.Claim
		queue bool
	}{
		"alone": {layout(t), plainClaim("a"), false}, "before one": {
			layout(t), plainClaim("a"),
			true,
		},
		"reader": {layout(t), reader("a"), false}, "permit": {layout(t), permit("a", 2), false},
		"re-entrant": {layout(t), entrant("o", "a"), false}, "dialect": {
			dialect, plainClaim("a"),
			false,
		},
	} {
		r := newRig(t)
		r.l = test.l
		c := test.c
		c.Key, c.TTL = r.key, minute
		grant := func() error {
			_, err := DecodeAcquire(r.send(r.l.Acquire(c)), c)
			return err
		}
		renew := func(d time.Duration) error {
			c := c
			c.TTL = d
			return DecodeRenew(r.send(r.l.Renew(c)))
		}
		remains := func() time.Duration {
			s, err := r.inspect()
			if err != nil || len(s.Holders) != 1 {
				t.Fatalf("%s: %+v, %v", name, s, err)
			}
			return s.Holders[0].TTL
		}
		if err := grant(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if test.queue {
			_ = r.refused(queued("b"), 1)
		}
		for what, again := range map[string]func() error{
			"a renewal": func() error { return renew(time.Second) },
			"a repeated attempt": func() error {
				c.TTL = time.Second
				defer func() { c.TTL = minute }()
				return grant()
			},
		} {
			if err := again(); err != nil || remains() < minute/2 {
				t.Errorf("%s: %s with a shorter TTL: %v, and %v remain", name, what, err, remains())
			}
		}
		if err := renew(time.Hour); err != nil || remains() < time.Hour-minute/2 {
			t.Errorf("%s: a renewal for an hour: %v, and %v remain", name, err, remains())
		}

		r = newRig(t)
		r.l, c.Key, c.TTL = test.l, r.key, 10*time.Millisecond
		if err := grant(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r.lapse(c.TTL)
		for range 2 {
			if err := renew(minute); !errors.Is(err, backend.ErrLost) {
				t.Errorf("%s: a renewal after the end of the lease: %v, want ErrLost", name, err)
			}
		}
	}
}

// A renewal with a minimum token raises the hold's token to it, never lowers it, and what is
// granted later is above it.
//
// covers: K1, K7
func TestRenewalRaisesTheToken(t *testing.T) {
	renew := func(r rig, c backend.Claim, least uint64) any {
		c.Key, c.TTL, c.MinToken = r.key, minute, least
		return r.send(r.l.Renew(c))
	}
	block := plainClaim("a")
	block.Reserve = 10
	for name, c := range map[string]backend.Claim{
		"alone": block, "reader": reader("a"), "permit": permit("a", 2), "re-entrant": entrant("o",
			"a"),
	} {
		r := newRig(t)
		first := r.granted(c)
		other := reader("b")
		if name == "re-entrant" {
			other = entrant("o", "b")
		}
		if name != "alone" && name != "permit" {
			r.granted(other)
		}
		least := first.Token + 1000
		for _, minToken := range []uint64{least, 5} {
			if err := DecodeRenew(renew(r, c, minToken)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			s := r.state()
			reserved := uint64(max(first.Reserved, 1)) - 1
			if s.Holders[0].Token != least || s.Token < least+reserved {
				t.Errorf("%s: after a renewal with %d: %+v, want token %d", name, minToken, s,
					least)
			}
			if name == "re-entrant" && s.Holders[1].Token != least ||
				name == "reader" && s.Holders[1].Token == least {
				t.Errorf("%s: the other's token is %d", name, s.Holders[1].Token)
			}
		}
		last := r.state().Token
		for _, gone := range []backend.Claim{c, other} {
			_ = r.drop(gone)
		}
		if next := r.granted(plainClaim("next")); next.Token <= last {
			t.Errorf("%s: token %d after %d", name, next.Token, last)
		}
		r = newRig(t)
		r.granted(c)
		before := r.stored()
		if reply := renew(r, c, 1<<52+1); DecodeRenew(reply) == nil || r.stored() != before {
			t.Errorf("%s: a minimum token that would use up the counter: %v", name, reply)
		}
	}
}

// Whatever verb comes first after something is over lets in whoever is next.
//
// covers: W9
func TestEveryVerbLetsIn(t *testing.T) {
	for verb, call := range map[string]func(r rig){
		"acquire": func(r rig) { _ = r.refusedOrNot(plainClaim("try")) },
		"renew": func(r rig) {
			_ = DecodeRenew(r.send(r.l.Renew(backend.Claim{Owner: "p1", TTL: minute})))
		},
		"release":    func(r rig) { _ = r.drop(plainClaim("stranger")) },
		"heartbeat":  func(r rig) { r.beats("p4", []bool{true}, permit("p4", 2)) },
		"releaseall": func(r rig) { r.releaseAll(plainClaim("stranger"), plainClaim("another")) },
	} {
		r := newRig(t)
		r.granted(permit("p1", 2))
		r.granted(permit("p2", 2))
		_ = r.refused(permit("p3", 2), 1)
		_ = r.refused(permit("p4", 2), 2)
		r.ended("h:p2")
		call(r)
		if s := r.state(); len(s.Holders) != 2 || s.Holders[1].Owner != "p3" ||
			len(s.Waiters) != 1 {
			t.Errorf("%s: %+v, want p3 to be let in", verb, s)
		}
	}
	r := newRig(t)
	held(r, 5, 2)
	r.ended("w:w1")
	r.dropped(plainClaim("holder"))
	if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Owner != "w2" {
		t.Errorf("a release with a dead head: %+v, want w2 to be let in", s)
	}
	// A writer that died before a reader, while another reads.
	r = newRig(t)
	r.granted(reader("r1"))
	_ = r.refused(queued("dead"), 1)
	_ = r.refused(reader("r2"), 2)
	r.ended("w:dead")
	r.beats("r2 behind a dead writer", []bool{false}, reader("r2"))
}

// Places that contradict each other are refused, and nobody's is kept or taken for another's.
//
// covers: I2, R23
func TestDamagedPlaces(t *testing.T) {
	for name, fields := range map[string][]string{
		"no reserve": {
			"q:1",
			fmt.Sprint(newRig(t).ms()+60_000, " 60000 me x 60000 w1 0 {}"),
		},
		"too large a reserve": {
			"q:1",
			fmt.Sprint(newRig(t).ms()+60_000, " 60000 me x 60000 w1 1025 {}"),
		},
		"too heavy a permit": {
			"q:1",
			fmt.Sprint(newRig(t).ms()+60_000, " 60000 me p,3*4, 60000 w1 1 {}"),
		},
		"a permit of nothing": {
			"q:1",
			fmt.Sprint(newRig(t).ms()+60_000, " 60000 me p,3*0, 60000 w1 1 {}"),
		},
		"a heavy reader": {
			"q:1",
			fmt.Sprint(newRig(t).ms()+60_000, " 60000 me s,0*2, 60000 w1 1 {}"),
		},
		"another's place":     {"w:w1", "2"},
		"a place before all":  {"w:w1", "0"},
		"a place after all":   {"w:w1", "3"},
		"a number that is no": {"w:w1", "x"},
		"no place":            {"q:1", "somebody's"},
	} {
		r := newRig(t)
		held(r, 5, 2)
		_, place, _ := strings.Cut(r.field("q:1"), " ")
		r.srv.MustDo("HSET", r.l.Key(r.key), "q:3", fmt.Sprint(r.ms()+60_000, " ", place), "q:0",
			fmt.Sprint(r.ms()+60_000, " ", place))
		r.srv.MustDo(append([]string{"HSET", r.l.Key(r.key)}, fields...)...)
		before := r.stored()
		c := queued("w1")
		c.Key, c.TTL, c.NoneInFlight = r.key, minute, true
		leaves := c
		if fields[0] == "q:1" && name != "no place" {
			leaves.Owner = "holder" // and hands over to it
		}
		for verb, reply := range map[string]any{
			"acquire": r.send(r.l.Acquire(c)), "release": r.send(r.l.Release(leaves)),
		} {
			if _, code := open(reply); code != codeForeign {
				t.Errorf("%s, %s: %v, want to be refused", name, verb, reply)
			}
		}
		if after := r.stored(); after != before {
			t.Errorf("%s: %s\nbecame %s", name, before, after)
		}
		if name != "another's place" && name != "no place" {
			continue // a heartbeat looks at its own place alone
		}
		if _, err := DecodeHeartbeat(r.send(r.l.Heartbeat([]backend.Claim{c})), 1); !errors.Is(err,
			backend.ErrForeign) {
			t.Errorf("%s, heartbeat: %v, want ErrForeign", name, err)
		}
	}
	r := newRig(t)
	held(r, 5, 2)
	r.ended("x")
	r.srv.MustDo("HDEL", r.l.Key(r.key), "q:1", "q:2")
	if _, err := r.ask(queued("a")); !errors.Is(err, backend.ErrForeign) {
		t.Errorf("places that are counted and not there: %v, want ErrForeign", err)
	}
}

// So are holds, and the tokens of one that is exclusive.
//
// covers: I2, R23
func TestDamagedHolds(t *testing.T) {
	refused := func(name string, r rig, c backend.Claim) {
		t.Helper()
		c.Key, c.TTL, c.NoneInFlight = r.key, minute, true
		before := r.stored()
		for verb, reply := range map[string]any{
			"acquire": r.send(r.l.Acquire(c)), "renew": r.send(r.l.Renew(c)),
		} {
			if _, code := open(reply); code != codeForeign {
				t.Errorf("%s, %s: %v, want to be refused", name, verb, reply)
			}
		}
		if after := r.stored(); after != before {
			t.Errorf("%s: %s\nbecame %s", name, before, after)
		}
	}
	for _, number := range []string{"0", "2", "3", "x", "1.5"} { // r2 has the second slot
		r := newRig(t)
		r.granted(reader("r1"))
		r.granted(reader("r2"))
		r.srv.MustDo("HSET", r.l.Key(r.key), "h:r1", number, "k:3", r.field("k:1"), "k:0",
			r.field("k:1"))
		refused("slot "+number, r, reader("r1"))
	}
	for _, count := range []string{"0", "1025", "6", "x"} {
		r := newRig(t)
		held(r, 5, 0)
		r.srv.MustDo("HSET", r.l.Key(r.key), "b", count)
		refused(count+" tokens", r, plainClaim("holder"))
	}
}

// A lease that is shorter than those before it is noticed when it is over.
//
// covers: R10, Q12
func TestShorterLeaseIsNoticed(t *testing.T) {
	r := newRig(t)
	r.granted(permit("p1", 2))
	short := permit("p2", 2)
	short.TTL = 10 * time.Millisecond
	r.granted(short)
	r.lapse(short.TTL)
	r.granted(permit("p3", 2))
}

// A replica, which may lag behind, does not say no to a renewal or a release, and nothing else.
//
// covers: R14, R16
func TestAReplicaSaysNothing(t *testing.T) {
	dialect, err := Dialect("", 0, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	nothing, peer := func(rig) {}, func(r rig) { r.srv.MustDo("SET", r.l.Key(r.key), "somebody's") }
	for name, test := range map[string]struct {
		l     Layout
		state func(r rig)
	}{
		"nothing": {layout(t), nothing}, "string": {layout(t), func(r rig) {
			r.granted(plainClaim("a"))
		}},
		"queue": {layout(t), func(r rig) { held(r, 5, 1) }},
		"tombstone": {layout(t), func(r rig) {
			_ = r.release("b", false)
			r.granted(plainClaim("a"))
		}},
		"readers": {layout(t), func(r rig) { r.granted(reader("a")); r.granted(reader("b")) }},
		"dialect": {dialect, nothing}, "dialect: a peer's": {dialect, peer},
	} {
		r := variant(t, test.l)
		test.state(r)
		r.srv.MustDo("REPLICAOF", "127.0.0.1", "1")
		for _, owner := range []string{"a", "b", "stranger", "holder", "w1"} {
			for _, unknown := range []bool{false, true} {
				c := backend.Claim{Key: r.key, Owner: owner, TTL: minute, NoneInFlight: !unknown}
				requests := map[string][]string{
					"renew":   words(r.l.Renew(c)),
					"release": words(r.l.Release(c)),
				}
				if !r.l.isDialect() {
					requests["releaseall"] = words(r.l.ReleaseAll([]backend.Claim{c, c}))
				}
				for verb, args := range requests {
					if reply, err := r.srv.Do(args...); err == nil {
						t.Errorf("%s: %s of %s at a replica = %v, want a refusal", name, verb,
							owner, reply)
					}
				}
			}
		}
	}
}

// A lock that never ends is none of ours, and one whose owner's lease is over is stored without an
// owner.
//
// covers: I2, R23
func TestWhatIsStored(t *testing.T) {
	r := newRig(t)
	for _, value := range []string{
		"h2 1700000000000000 60000 other 1 ",
		"h2 1700000000000000 60000 a 1 ",
	} {
		r.srv.MustDo("SET", r.l.Key(r.key), value)
		if _, err := r.ask(reader("a")); !errors.Is(err, backend.ErrForeign) {
			t.Errorf("a string without an expiry: %v, want ErrForeign", err)
		}
	}
	held(r, 5, 1)
	r.ended("x")
	r.ended("w:w1")
	if err := r.drop(queued("w1")); !errors.Is(err, backend.ErrLost) {
		t.Fatal(err)
	}
	if got := r.stored(); got != "h2 5" {
		t.Errorf("after the last place was left, behind a lease that is over: %q, want the "+
			"counter alone", got)
	}
}

// The side key of the string dialect outlives the lock and its tombstones, keeps what time it has,
// and is refused if it is damaged, or its counter used up.
//
// covers: K1, R23, R24
func TestSideKeyOfTheDialect(t *testing.T) {
	l, err := Dialect("", 0, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	start := func() (rig, string) {
		r := newRig(t)
		r.l = l
		return r, sideKey(l.Key(r.key))
	}
	lives := func(r rig, side string) (ms int64) {
		_, _ = fmt.Sscan(r.srv.MustDo("PTTL", side), &ms)
		return ms
	}
	c := plainClaim("a")
	r, side := start()
	if _, err := r.tryAcquire(c); err != nil {
		t.Fatal(err)
	}
	r.srv.MustDo("PEXPIRE", side, "1000")
	if err := r.tryRelease(c); err != nil {
		t.Fatal(err)
	}
	if left := lives(r, side); left < (2*minute+minute/2+3*time.Second).Milliseconds()-5000 {
		t.Errorf("after a release with a tombstone of two minutes the side key lives for %d ms",
			left)
	}
	r.srv.MustDo("PEXPIRE", side, "1000")
	if _, err := r.tryAcquire(plainClaim("r")); err != nil {
		t.Fatal(err)
	}
	r.srv.MustDo("PEXPIRE", side, "1000")
	_, err = r.tryAcquire(plainClaim("r"))
	if left := lives(r, side); err != nil || left < (minute+minute/2).Milliseconds()-5000 {
		t.Errorf("%v, and after a repeat the side key lives for %d ms, and the lock for a minute",
			err, left)
	}
	if err := r.tryRelease(plainClaim("r")); err != nil {
		t.Fatal(err)
	}
	const longer = 100 * time.Hour
	r.srv.MustDo("PEXPIRE", side, fmt.Sprint(longer.Milliseconds()))
	g, err := r.tryAcquire(plainClaim("b"))
	if left := lives(r, side); err != nil || left < longer.Milliseconds()-10_000 {
		t.Errorf("%v, and the side key lives for %d ms of %v", err, left, longer)
	}
	if err := r.tryRelease(plainClaim("b")); err != nil {
		t.Fatal(err)
	}
	ahead := g.Token + uint64(time.Hour.Microseconds())
	r.srv.MustDo("SET", side, fmt.Sprintf("h2 %d 1 b 0 ", ahead), "PX", "1000")
	if g, err := r.tryAcquire(plainClaim("c")); err != nil || g.Token != ahead+1 ||
		lives(r, side) < 2*time.Hour.Milliseconds()-10_000 {
		t.Errorf("after a counter that is ahead of the clock: %+v, %v, and the side key "+
			"lives for %d ms", g, err, lives(r, side))
	}
	for name, value := range map[string]string{
		"used up": fmt.Sprintf("h2 %d 1 x 0 ", int64(1<<53-2)), "no tokens": "h2 7 0 x 0 ",
		"too many":                    "h2 1700000000000000 1025 x 0 ",
		"more tokens than were given": "h2 7 8 x 0 ", "tombstones cut": "h2 7 1 x 9 1 a;",
		"no counter": "h2 x 1 x 0 ", "somebody's": "x",
		"tombstones damaged": "h2 7 1 x 2 a;",
	} {
		r, side := start()
		r.srv.MustDo("SET", side, value, "PX", "60000")
		if g, err := r.tryAcquire(c); !errors.Is(err, backend.ErrForeign) {
			t.Errorf("%s: %+v, %v, want ErrForeign", name, g, err)
		}
		if got := r.srv.MustDo("GET", side); got != value {
			t.Errorf("%s: the side key became %q", name, got)
		}
	}
	r, side = start() // a lock of ours whose counter is another's
	r.srv.MustDo("SET", r.key, "a", "PX", "60000")
	for _, value := range []string{"", "h2 7 1 b 0 "} {
		if value != "" {
			r.srv.MustDo("SET", side, value, "PX", "60000")
		}
		if _, err := r.tryAcquire(c); !errors.Is(err, backend.ErrForeign) {
			t.Errorf("a lock of ours with the side key %q: %v, want ErrForeign", value, err)
		}
	}
}

// A lease that is over is neither renewed, nor released with a yes: also where others wait, and
// with a tombstone.
//
// covers: I1, B8
func TestEndedLeaseBeforeAQueue(t *testing.T) {
	for what, end := range map[string]func(r rig, c backend.Claim) error{
		"renew":   func(r rig, c backend.Claim) error { return DecodeRenew(r.send(r.l.Renew(c))) },
		"release": func(r rig, c backend.Claim) error { return released(r.send(r.l.Release(c))) },
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
