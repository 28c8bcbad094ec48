package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var inputRules = []rule{
	{
		name: "input/ttl", run: badTTLs,
		why: "A lease of nothing, of less than the store can count, or of for ever is refused " +
			"before anything is written." +
			" (int64(ttl/time.Millisecond) is 0 below a millisecond, and 0 means no expiry or an " +
			"error, depending on the command.)",
	},
	{
		name: "input/claim", run: badClaims,
		why: "What no store should see is refused with a *backend.InvalidError that names the " +
			"field, and nothing is written.",
	},
	{
		name: "input/key", run: badKeys,
		why: "Every verb refuses a key that is empty, too long or not UTF-8. Ten megabytes must " +
			"not reach the store, nor a log.",
	},
	{
		name: "input/renew", run: badRenewals,
		why: "A renewal with a bad TTL is refused, and the hold stays as it was.",
	},
	{
		name: "input/release", run: oddReleases,
		why: "Whatever was acquired can be released: Release does not ask for a valid TTL, and " +
			"gets by with any.",
	},
	{
		name: "input/largest", run: largestClaim,
		why: "The limits are part of the contract: a claim at every limit works.",
	},
}

// covers: I1, I2, A8
func badTTLs(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	for _, ttl := range e.badTTLs() {
		c := e.claim(key)
		c.TTL = ttl
		_, err := a.TryAcquire(e.ctx, c)
		e.invalid(fmt.Sprintf("TryAcquire with a TTL of %v", ttl), err, "ttl")
		e.untouched(b, key)
	}
}

func (e *env) badTTLs() []time.Duration {
	ttls := []time.Duration{0, -1, -time.Second, math.MinInt64, math.MaxInt64, backend.MaxTTL + 1}
	for _, below := range []time.Duration{
		1, e.caps.MinTTL - 1, e.caps.MinTTL - 10*time.Millisecond,
		e.caps.MinTTL / 2,
	} {
		if 0 < below && below < e.caps.MinTTL {
			ttls = append(ttls, below)
		}
	}
	return ttls
}

// covers: I8, I5, A12
func badClaims(e *env) {
	a, b := e.open(), e.open()
	bad := map[string]func(*backend.Claim){
		"owner":   func(c *backend.Claim) { c.Owner = "" },
		"mode":    func(c *backend.Claim) { c.Mode = 77 },
		"limit":   func(c *backend.Claim) { c.Limit = 1 },
		"reserve": func(c *backend.Claim) { c.Reserve = backend.MaxReserve + 1 },
		"meta": func(c *backend.Claim) {
			c.Meta.Service = strings.Repeat("x", backend.MaxMeta+1)
		},
		"note": func(c *backend.Claim) { c.Meta.Note = strings.Repeat("x", backend.MaxNote+1) },
	}
	if e.caps.Queue {
		bad["waiter_ttl"] = func(c *backend.Claim) { c.Queue = true }
	}
	if e.caps.Reentrant {
		bad["hold"] = func(c *backend.Claim) { c.Reentrant = true }
	}
	for field, spoil := range bad {
		key := e.key(field)
		c := e.claim(key)
		spoil(&c)
		_, err := a.TryAcquire(e.ctx, c)
		e.invalid("TryAcquire with a bad "+field, err, field)
		if field == "owner" || field == "hold" {
			e.invalid("Release with a bad "+field, release(e.ctx, a, c), field)
		}
		e.untouched(b, key)
	}
	long := e.claim(e.key("long owner"))
	long.Owner = strings.Repeat("o", backend.MaxOwner+1)
	_, err := a.TryAcquire(e.ctx, long)
	e.invalid("TryAcquire with a long owner", err, "owner")
}

// covers: I5, I4
func badKeys(e *env) {
	a := e.open()
	for _, key := range []string{
		"", "\xff", e.prefix + "a\xc3",
		strings.Repeat("k", backend.MaxKey+1), strings.Repeat("k", 10<<20),
	} {
		c := e.claim(key)
		ctx, cancel := context.WithCancel(e.ctx)
		for verb, call := range map[string]func() error{
			"TryAcquire": func() error { _, err := a.TryAcquire(ctx, c); return err },
			"Renew":      func() error { return a.Renew(ctx, c) },
			"Release":    func() error { return release(ctx, a, c) },
			"Watch":      func() error { _, err := a.Watch(ctx, c); return err },
			"Inspect":    func() error { _, err := a.Inspect(ctx, key); return err },
		} {
			err := call()
			if verb == "Watch" && !e.caps.Watch || verb == "Inspect" && !e.caps.Inspect {
				if !errors.Is(err, errors.ErrUnsupported) {
					e.invalid(verb+" of "+short(key), err, "key")
				}
				continue
			}
			e.invalid(verb+" of "+short(key), err, "key")
			if err != nil && len(err.Error()) > 1000 {
				e.Errorf("%s of a bad key fails with a text of %d bytes", verb, len(err.Error()))
			}
		}
		cancel()
	}
}

// covers: I1, I2
func badRenewals(e *env) {
	a, b := e.open(), e.open()
	c := e.claim(e.key("k"))
	e.acquire(a, c)
	for _, ttl := range e.badTTLs() {
		bad := c
		bad.TTL = ttl
		e.invalid(fmt.Sprintf("Renew with a TTL of %v", ttl), a.Renew(e.ctx, bad), "ttl")
	}
	e.held(b, e.claim(c.Key))
	e.renewed(a, c)
}

// covers: I2
func oddReleases(e *env) {
	a, b := e.open(), e.open()
	for i, ttl := range append(e.badTTLs(), e.long) {
		key := e.key(fmt.Sprint(i))
		never := e.claim(key)
		never.TTL = ttl
		e.lost(fmt.Sprintf("Release with a TTL of %v of a claim that never held", ttl),
			release(e.ctx, a, never))
		never.TTL = e.long
		e.tombstoned(b, never)
		c := e.claim(key)
		e.acquire(a, c)
		c.TTL = ttl
		e.release(a, c)
		e.free(b, key)
	}
}

// covers: I5, I8, I2
func largestClaim(e *env) {
	a, b := e.open(), e.open()
	// A byte that an encoding may have to escape.
	name := strings.Repeat("\x00", backend.MaxKey-len(e.prefix))
	c := e.claim(e.key(name))
	c.Owner = strings.Repeat("\x01", backend.MaxOwner-len(e.prefix)) + e.prefix
	c.Meta = backend.Meta{
		Service: strings.Repeat("\x02", backend.MaxMeta-2), Host: "\"", Traceparent: "\\",
		PID: math.MaxInt32,
	}
	c.TTL = backend.MaxTTL
	g := e.acquire(a, c)
	if g.TTL < c.TTL {
		e.Errorf("granted %v of %v", g.TTL, c.TTL)
	}
	if held := e.held(b, e.claim(c.Key)); held.Holder != c.Meta {
		e.Error("the largest metadata came back changed")
	}
	e.renewed(a, c)
	e.release(a, c)
	e.free(b, c.Key)
}

// invalid must be an *InvalidError about field.
func (e *env) invalid(what string, err error, field string) {
	e.Helper()
	var bad *backend.InvalidError
	if !errors.As(err, &bad) || !errors.Is(err, backend.ErrInvalid) {
		e.Errorf("%s = %v, want a *backend.InvalidError", what, err)
	} else if bad.Field != field {
		e.Errorf("%s = %v, which is about %q, want %q", what, err, bad.Field, field)
	}
}

// untouched must find key free, after a request that should have written nothing.
func (e *env) untouched(b backend.Backend, key string) {
	e.Helper()
	e.free(b, key)
}
