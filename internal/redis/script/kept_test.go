package script

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/smallredis"
)

// older takes d off the time that is left to the keys of the lock, as if it had passed.
func (r rig) older(d time.Duration) {
	r.t.Helper()
	for _, key := range r.l.Inspect(r.key).Keys {
		left, err := strconv.ParseInt(r.srv.MustDo("PTTL", key), 10, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		if left > 0 { // what has none left after that is deleted
			r.srv.MustDo("PEXPIRE", key, strconv.FormatInt(left-d.Milliseconds(), 10))
		}
	}
}

// A release of many keys leaves one whose counter is ahead of the clock to a release of that key,
// which keeps the counter until the clock has caught up: later tokens are above it.
//
// covers: K1
func TestTryReleaseAllKeepsACounterAhead(t *testing.T) {
	const ahead = 10 * time.Minute
	guarded := variant(t, layout(t).Guarded(minute, 0))
	_, _ = guarded.tryAcquire(plainClaim("first"))
	guarded.pass(time.Hour)
	c := plainClaim("a")
	for way, hold := range map[string]func(r rig, counter uint64) error{
		"a renewal with a minimum token": func(r rig, counter uint64) error {
			if _, err := r.tryAcquire(c); err != nil {
				return err
			}
			raises := c
			raises.MinToken = counter
			return r.tryRenew(raises)
		},
		"a grant by a clock that was set back": func(r rig, counter uint64) error {
			r.set(Free(counter - 1))
			_, err := r.tryAcquire(c)
			return err
		},
	} {
		guarded.key = fmt.Sprint("k", seq.Add(1))
		for name, r := range map[string]rig{"own": newRig(t), "guarded": guarded} {
			counter := uint64(r.ms()*1000 + ahead.Microseconds())
			if err := hold(r, counter); err != nil {
				t.Fatalf("%s, %s: %v", name, way, err)
			}
			claim := backend.Claim{Key: r.key, Owner: "a", TTL: minute, NoneInFlight: true}
			if !r.tryReleaseAll([]backend.Claim{claim})[0] {
				r.dropped(c)
			}
			if left := r.left(); left < int64(counter/1000)-r.ms() {
				t.Errorf("%s, %s: the counter is gone in %d ms, before the clock is there", name,
					way, left)
			}
			r.older(minute)
			if g, err := r.tryAcquire(plainClaim("b")); err != nil || g.Token <= counter {
				t.Errorf("%s, %s: after token %d came %+v, %v", name, way, counter, g, err)
			}
		}
	}
}

// However long a hold is renewed, what is stored of it lasts with its lease: the token and Meta are
// there, and its holder renews it and gives it back.
//
// covers: B2, K1
func TestRenewalKeepsAllOfAHold(t *testing.T) {
	dialect, err := Dialect("", 0, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]Layout{"own": layout(t), "dialect": dialect} {
		r := newRig(t)
		r.l = l
		c := plainClaim("a")
		c.Reserve, c.Meta.Service = 5, "shop"
		g, err := r.tryAcquire(c)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 8 {
			r.older(40 * time.Second)
			if err := r.tryRenew(c); err != nil {
				t.Fatalf("%s: renewal %d: %v", name, n+1, err)
			}
			s := r.state()
			if h := s.Holders; len(h) != 1 || h[0].Token != g.Token || h[0].Meta.Service != "shop" {
				t.Fatalf("%s: after renewal %d of token %d: %+v", name, n+1, g.Token, s)
			}
		}
		r.older(40 * time.Second)
		c.NoneInFlight = true
		if err := r.tryRelease(c); err != nil {
			t.Errorf("%s: release: %v", name, err)
		}
		next, err := r.tryAcquire(plainClaim("b"))
		if last := g.Token + uint64(g.Reserved) - 1; err != nil || next.Token <= last {
			t.Errorf("%s: after token %d came %+v, %v", name, last, next, err)
		}
	}
}

// Who is let in with a shorter lease than the others while the dead are dropped bit by bit is
// noticed when that lease is over, and keeps nobody out for the time of theirs.
//
// covers: R10, B15
func TestShorterLeaseDuringAPurgeIsNoticed(t *testing.T) {
	const n = 300
	for name, mode := range map[string]func(owner string) backend.Claim{
		"readers": reader, "permits": func(owner string) backend.Claim {
			return permit(owner, n+1)
		},
	} {
		r := newRig(t)
		for i := range n {
			c := mode(fmt.Sprint("c", i))
			c.TTL = time.Hour
			r.granted(c)
		}
		unseen := func() string { return strings.Fields(r.field("g"))[4] }
		r.ended("h:c0") // the last that a purge comes to
		short := mode("short")
		short.TTL = 50 * time.Millisecond
		r.granted(short)
		if unseen() == "0" {
			t.Fatalf("%s: no purge is under way", name)
		}
		for range n / 128 {
			r.granted(mode(fmt.Sprint("c", n-1))) // a repeat, whose script sees to the next of them
		}
		if left := unseen(); left != "0" {
			t.Fatalf("%s: %s are still to be seen", name, left)
		}
		for i := 1; i < n; i++ {
			r.dropped(mode(fmt.Sprint("c", i)))
		}
		r.lapse(short.TTL)
		if _, err := r.ask(plainClaim("writer")); err != nil {
			t.Errorf("%s: a writer when all leases are over: %v", name, err)
		}
	}
}

// However short a lease and the retention are, the counter of a key outlives it until the clock has
// passed it, so tokens rise: also where a minimum token and reserves have put it ahead.
//
// covers: K1, K2
func TestTokensRiseWhereLittleIsKept(t *testing.T) {
	l, err := NewLayout("", time.Millisecond, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for ttl := MinTTL; ttl <= 60*time.Millisecond; ttl += 5 * time.Millisecond {
		for grants := range 12 {
			clock := time.UnixMicro(1_800_000_000_000_900)
			srv := smallredis.New(func() time.Time { return clock }, strings.Repeat("a", 40))
			run := evaluated(t, srv)
			c := backend.Claim{
				Key: "k", Owner: "o", TTL: ttl, NoneInFlight: true, Reserve: 1000,
				MinToken: backend.MaxMinToken,
			}
			take := func() (first, last uint64) {
				g, err := DecodeAcquire(run(l.Acquire(c)), c)
				if err != nil {
					t.Fatal(err)
				}
				return g.Token, g.Token + uint64(max(g.Reserved, 1)) - 1
			}
			var last uint64
			for range grants + 1 {
				_, last = take()
				if _, err := DecodeRelease(run(l.Release(c))); err != nil {
					t.Fatal(err)
				}
			}
			for n := 0; len(srv.Keys()) > 0 && n < 1000; n++ {
				clock = clock.Add(time.Millisecond)
			}
			c.MinToken = 0
			if next, _ := take(); next <= last {
				t.Errorf(history.Broken+"after %d grants of %v a token fell from %d to %d",
					grants+1, ttl, last, next)
			}
		}
	}
}

// evaluated runs requests on a small server.
func evaluated(t *testing.T, srv *smallredis.Server) func(r Request) any {
	return func(r Request) any {
		t.Helper()
		reply, err := srv.Eval(r.Script.Source(), r.Keys, r.Args)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
}

// A server that stands still within a script, where its clock goes on, shortens no lease: one that
// was a string is stored as it is in the hash that takes its place.
func TestLeaseOnAServerThatStandsStill(t *testing.T) {
	l := layout(t)
	for name, waiter := range map[string]backend.Claim{
		"short way": queued("b"), "long way": reader("b"),
	} {
		clock, still := time.UnixMilli(1_800_000_000_000), time.Duration(0)
		srv := smallredis.New(func() time.Time {
			clock = clock.Add(still)
			return clock
		}, strings.Repeat("a", 40))
		srv.GoesOn = true
		run := evaluated(t, srv)
		c := backend.Claim{Key: "k", Owner: "a", TTL: minute}
		if _, err := DecodeAcquire(run(l.Acquire(c)), c); err != nil {
			t.Fatal(err)
		}
		ends := clock.Add(minute).UnixMilli()
		still = 50 * time.Millisecond
		waiter.Key, waiter.TTL = c.Key, minute
		if _, err := DecodeAcquire(run(l.Acquire(waiter)), waiter); !errors.Is(err,
			backend.ErrHeld) {
			t.Fatalf("%s: %v, want ErrHeld", name, err)
		}
		reply, err := srv.Do("HGET", l.Key(c.Key), "x")
		stored, _ := reply.(string)
		if x, _ := strconv.ParseInt(stored, 10, 64); err != nil || x < ends {
			t.Errorf(history.Broken+"%s: a lease until %d is stored as one until %q, %v", name,
				ends, stored, err)
		}
	}
}
