package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// What a key outlives its lease by is a whole number of milliseconds: the script takes it from the
// end of the key, and a part of one would be taken from the lease. Of a lease nothing more is told
// than was asked for, as that is what the holder believes in.
func TestPartsOfAMillisecond(t *testing.T) {
	for _, retention := range []time.Duration{1, 1500 * time.Microsecond, time.Second + 1} {
		l, err := NewLayout("", retention, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, ttl := range []time.Duration{
			100*time.Millisecond + 900*time.Microsecond,
			time.Second + 400*time.Microsecond, time.Minute + 1,
		} {
			c := backend.Claim{Key: "k", Owner: "o", TTL: ttl}
			if keep := l.Keep(c); keep%time.Millisecond != 0 || keep < max(retention, ttl/2) {
				t.Errorf("a lease of %v with a retention of %v is kept for %v", ttl, retention,
					keep)
			}
			if g := Granted(1, c); g.TTL != ttl {
				t.Errorf("granted %v of %v", g.TTL, ttl)
			}
		}
	}
}

// A lease lasts for all of its TTL from when the server has the request, and a place for all of its
// own: their ends are whole milliseconds, and a part of one has gone by. Their clients count from
// when they have asked.
//
// covers: D7
func TestNothingEndsBeforeItsTime(t *testing.T) {
	dialect, err := Dialect("", 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	acquire := func(c backend.Claim) func(r rig) {
		return func(r rig) {
			if _, err := r.tryAcquire(c); err != nil && !errors.Is(err, backend.ErrHeld) {
				r.t.Fatalf("%+v: %v", c, err)
			}
		}
	}
	renew := func(c backend.Claim) func(r rig) {
		return func(r rig) {
			if err := r.tryRenew(c); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	beats := func(who string) func(r rig) {
		return func(r rig) { r.beats(who, []bool{true}, queued(who)) }
	}
	among := func(c backend.Claim) func(r rig) {
		return func(r rig) {
			c.Key, c.TTL = r.key, minute
			if granted, err := r.tryAll([]backend.Claim{c}); err != nil || granted[0].Token == 0 {
				r.t.Fatal(granted, err)
			}
		}
	}
	free := func(rig) {}
	behind := func(r rig) { held(r, 5, 2) }
	a, reads, counted, enters := queued("a"), reader("a"), permit("a", 2), entrant("o", "a")
	for name, test := range map[string]struct {
		l    Layout
		is   func(r rig)
		then func(r rig)
		end  string // the field that leads to it, if the key is a hash
	}{
		"a free key":  {is: free, then: acquire(a), end: "x"},
		"one of many": {is: free, then: among(a), end: "x"},
		"after a lease that is over": {is: func(r rig) {
			held(r, 5, 0)
			r.ended("x")
		}, then: acquire(a), end: "x"},
		"a repeat":                 {is: acquire(a), then: acquire(a), end: "x"},
		"a repeat before a queue":  {is: behind, then: acquire(queued("holder")), end: "x"},
		"a renewal":                {is: acquire(a), then: renew(a), end: "x"},
		"a renewal before a queue": {is: behind, then: renew(plainClaim("holder")), end: "x"},
		"a reader":                 {is: free, then: acquire(reads), end: "h:a"},
		"a second reader":          {is: acquire(reader("r")), then: acquire(reads), end: "h:a"},
		"a reader's repeat":        {is: acquire(reads), then: acquire(reads), end: "h:a"},
		"a reader's renewal":       {is: acquire(reads), then: renew(reads), end: "h:a"},
		"a permit":                 {is: free, then: acquire(counted), end: "h:a"},
		"a re-entrant hold":        {is: free, then: acquire(enters), end: "h:a"},
		"handed to the next": {is: queue(a), then: func(r rig) {
			r.dropped(plainClaim("h"))
		}, end: "x"},
		"handed to the next before others": {is: func(r rig) {
			queue(a)(r)
			_ = r.refused(queued("b"), 2)
		}, then: func(r rig) { r.dropped(plainClaim("h")) }, end: "x"},
		"handed to a reader": {is: queue(reads), then: func(r rig) {
			r.dropped(plainClaim("h"))
		}, end: "h:a"},
		"the first place": {
			is: acquire(plainClaim("h")), then: acquire(a),
			end: "w:a",
		},
		"a place behind others":           {is: behind, then: acquire(a), end: "w:a"},
		"a reader's place":                {is: behind, then: acquire(reads), end: "w:a"},
		"a place that is asked for again": {is: queue(a), then: acquire(a), end: "w:a"},
		"a heartbeat":                     {is: behind, then: beats("w2"), end: "w:w2"},
		"a heartbeat that lets in": {is: func(r rig) {
			behind(r)
			r.ended("x")
		}, then: beats("w2"), end: "w:w2"},
		"the dialect": {l: dialect, is: free, then: acquire(plainClaim("a"))},
		"a repeat in the dialect": {
			l: dialect, is: acquire(plainClaim("a")),
			then: acquire(plainClaim("a")),
		},
		"a renewal in the dialect": {
			l: dialect, is: acquire(plainClaim("a")),
			then: renew(plainClaim("a")),
		},
	} {
		for range 10 { // each within the millisecond in which it began, but for one that is unlucky
			r := newRig(t)
			if test.l != (Layout{}) {
				r.l = test.l
			}
			test.is(r)
			r.lapse(0) // so that a repeat or a renewal comes later
			began := r.us()
			test.then(r)
			if end := r.end(test.end); end*1000 < began+minute.Microseconds() {
				t.Errorf("%s: it ends %d µs before a minute after the request was sent", name,
					began+minute.Microseconds()-end*1000)
				break
			}
		}
	}
}

// queue has the claim wait behind h.
func queue(c backend.Claim) func(r rig) {
	return func(r rig) {
		r.granted(plainClaim("h"))
		_ = r.refused(c, 1)
	}
}

// us is the server's clock.
func (r rig) us() int64 {
	r.t.Helper()
	reply, err := r.srv.Do("TIME")
	if err != nil {
		r.t.Fatal(err)
	}
	var s, us int64
	if _, err := fmt.Sscan(fmt.Sprintln(reply.([]any)...), &s, &us); err != nil {
		r.t.Fatal(err)
	}
	return s*1_000_000 + us
}

// end is when the lease of a key ends, or in a hash what field leads to: "x" of a hold that is
// alone, "h:id" of one of several, "w:id" of a place. In ms by the server's clock.
func (r rig) end(field string) (ms int64) {
	r.t.Helper()
	kind, _, _ := strings.Cut(field, ":")
	end := ""
	switch {
	case r.srv.MustDo("TYPE", r.l.Key(r.key)) == "string":
		reply, err := r.srv.Do("EVAL", `
			local margin = string.match(redis.call('GET', KEYS[1]), '^h2 %d+ (%d+) ') or 0
			-- The clock last: else it might seem to end sooner.
			local left, time = redis.call('PTTL', KEYS[1]), redis.call('TIME')
			local now = math.floor(time[1] * 1000 + time[2] / 1000)
			return string.format('%.0f', now + left - margin)`,
			"1", r.l.Key(r.key))
		if err != nil {
			r.t.Fatal(err)
		}
		end = fmt.Sprint(reply)
	case kind == "x":
		end = r.field("x")
	default:
		end = r.field(map[string]string{"h": "k:", "w": "q:"}[kind] + r.field(field))
	}
	if _, err := fmt.Sscan(end, &ms); err != nil {
		r.t.Fatalf("%s: %q: %v", field, end, err)
	}
	return ms
}
