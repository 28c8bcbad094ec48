package script

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// However fast a key changes hands, and however many tokens each hold reserves, tokens do not run
// away from the server's clock, which alone keeps them rising when everything else is lost.
//
// covers: K1
func TestTokensStayNearTheClock(t *testing.T) {
	dialect, err := Dialect("", 0, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]Layout{"own": layout(t), "dialect": dialect} {
		r := variant(t, l)
		last := uint64(0)
		for i := range 100 {
			c := plainClaim(fmt.Sprint("owner", i))
			c.Reserve = backend.MaxReserve
			g, err := r.tryAcquire(c)
			if err != nil {
				t.Fatal(err)
			}
			if g.Token <= last || g.Reserved < 1 {
				t.Fatalf("%s: %+v after %d", name, g, last)
			}
			last = g.Token + uint64(g.Reserved) - 1
			if ahead := int64(last) - 1000*(r.ms()+1); ahead > 10_000 {
				t.Fatalf("%s: after %d grants tokens are %dµs ahead of the clock", name, i+1, ahead)
			}
			c.NoneInFlight = true
			if err := r.tryRelease(c); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Who finds the server changed does not write his own rule over that of the others, whose leases
// may be longer than his grace.
//
// covers: R1
func TestGuardKeepsItsRule(t *testing.T) {
	ours := layout(t).Guarded(minute, 0)
	for what, other := range map[string]Layout{
		"a shorter TTL": layout(t).Guarded(minute/2, 0), "a longer TTL": layout(t).Guarded(2*minute,
			0), "another lag": layout(t).Guarded(minute, 10*time.Second),
	} {
		r := variant(t, ours)
		_, _ = r.tryAcquire(plainClaim("a"))
		r.pass(time.Hour)
		r.srv.MustDo("REPLICAOF", "127.0.0.1", "1")
		r.srv.MustDo("REPLICAOF", "NO", "ONE")
		r.l = other
		if _, err := r.tryAcquire(plainClaim("b")); !errors.Is(err, backend.ErrUnsafe) {
			t.Errorf("%s, of a server that was promoted: %v, want ErrUnsafe", what, err)
		}
		mark := r.srv.MustDo("EVAL", Mark.Source(), "1", other.MarkKey())
		if err := other.CheckMark(mark); !errors.Is(err, backend.ErrUnsafe) {
			t.Errorf("%s, at the first look: %v, want ErrUnsafe", what, err)
		}
		if err := layout(t).CheckMark(mark); !errors.Is(err, backend.ErrUnsafe) {
			t.Errorf("no guard, at the first look: %v, want ErrUnsafe", err)
		}
		if err := ours.CheckMark(mark); err != nil {
			t.Errorf("its own mark: %v", err)
		}
		r.l = ours
		_, err := r.tryAcquire(plainClaim("a"))
		r.closed(what, "restarted or promoted", err)
	}
}

// A server that has become a replica may have missed the end of a hold: it neither renews it nor
// repeats its grant.
//
// covers: R14, R16
func TestAReplicaRenewsNothing(t *testing.T) {
	dialect, err := Dialect("", 0, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]Layout{"own": layout(t), "dialect": dialect} {
		r := variant(t, l)
		c := plainClaim("a")
		if _, err := r.tryAcquire(c); err != nil {
			t.Fatal(err)
		}
		// As if its clock were behind.
		r.srv.MustDo("PEXPIRE", r.l.Key(r.key), fmt.Sprint(10*time.Hour.Milliseconds()))
		r.srv.MustDo("REPLICAOF", "127.0.0.1", "1")
		c.Key, c.TTL = r.key, minute
		for verb, args := range map[string][]string{
			"renew": words(r.l.Renew(c)), "acquire": words(r.l.Acquire(c)),
		} {
			if reply, err := r.srv.Do(args...); err == nil &&
				fmt.Sprint(reply) == fmt.Sprint(codeOK) || err == nil && name == "dialect" {
				t.Errorf("%s: %s at a replica = %v, want a refusal", name, verb, reply)
			}
		}
	}
}

// Locks of the dialect never share a side key, and a key that can have none is refused.
//
// covers: R11, R24
func TestDialectKeysAreApart(t *testing.T) {
	r := dialectRig(t)
	braced := r
	r.key, braced.key = "a", "{a}"
	c := plainClaim("me")
	for _, one := range []rig{r, braced} {
		if _, err := one.tryAcquire(c); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range []rig{r, braced} {
		if err := one.tryRenew(c); err != nil {
			t.Errorf("%s: renew beside the other: %v", one.key, err)
		}
		if err := one.tryRelease(c); err != nil {
			t.Errorf("%s: release beside the other: %v", one.key, err)
		}
	}
	for key, good := range map[string]bool{
		"a": true, "{a}": true, "a{b": true, "x{y}z}": true,
		"a}b": false, "{}x": false, "x{}y": false,
	} {
		err := r.l.CheckKey(key, true)
		if (err == nil) != good || err != nil && !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("CheckKey(%q) = %v", key, err)
		}
		if err := layout(t).CheckKey(key, true); err != nil {
			t.Errorf("our own layout: CheckKey(%q) = %v", key, err)
		}
	}
	err := ServerError("CROSSSLOT Keys in request don't hash to the same slot")
	if !backend.Refused(err) {
		t.Errorf("CROSSSLOT is %v, want a refusal", err)
	}
}

// No lock of the string dialect is the side key of another, so nobody can block a lock by the name
// of his own.
//
// covers: R24
func TestNoLockIsASideKey(t *testing.T) {
	for _, prefix := range []string{"", "{", "p:", "{p}:", ":holdfast"} {
		l, err := Dialect(prefix, 0, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, victim := range []string{"victim", "vic{tim}", "{victim}", "victim:free"} {
			side := sideKey(l.Key(victim))
			for _, name := range []string{
				side, strings.TrimPrefix(side, prefix),
				victim + ":tagged:holdfast", "probe:holdfast",
			} {
				err := l.CheckKey(name, false)
				if invalid := (*backend.InvalidError)(nil); !errors.As(err, &invalid) ||
					invalid.Field != "key" {
					t.Errorf("prefix %q: CheckKey(%q) = %v, and it may be the side key %q", prefix,
						name, err, side)
				}
			}
			if err := l.CheckKey(victim, false); err != nil {
				t.Errorf("prefix %q: CheckKey(%q) = %v", prefix, victim, err)
			}
		}
	}
	if err := layout(t).CheckKey("{victim}:holdfast", true); err != nil {
		t.Errorf("our own layout: %v", err)
	}
}

// Permits that have all run out are no reason to refuse another limit for good, however many they
// are.
func TestExpiredPermitsHaveNoLimit(t *testing.T) {
	r := variant(t, layout(t))
	const ttl = time.Second
	for i := range 200 {
		c := permit(fmt.Sprint("p", i), 200)
		c.Key, c.TTL = r.key, ttl
		if _, err := DecodeAcquire(r.send(r.l.Acquire(c)), c); err != nil {
			t.Fatal(err)
		}
	}
	r.lapse(ttl)
	for range 3 {
		_, err := r.ask(permit("new", 300))
		if err == nil {
			return
		}
		if held := (*backend.HeldError)(nil); !errors.As(err, &held) ||
			held.RetryAfter > time.Second {
			t.Fatalf("a claim with another limit: %v, want to be told to ask again soon", err)
		}
	}
	t.Error("not granted")
}

func TestHugeLimitsAreRefused(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		return // nothing is over it
	}
	c := permit("a", backend.MaxPermits)
	c.Key, c.TTL = "k", time.Minute
	caps := backend.Capabilities{Permit: true, Queue: true}
	if err := c.Validate(caps); err != nil {
		t.Error(err)
	}
	c.Limit++
	if err := c.Validate(caps); !errors.Is(err, backend.ErrInvalid) ||
		!strings.Contains(err.Error(), "limit") {
		t.Errorf("Validate = %v", err)
	}
}
