package backendtest

import (
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
)

// A shape makes a mutex of something else: a semaphore of one, the last place of a larger one, the
// write side of a reader–writer lock. Each must pass the rules of a mutex. (The idea is
// DistributedLock's.)
type shape struct {
	name   string
	needs  backend.Capabilities
	claim  func(*backend.Claim)
	beside int  // how many permits others hold meanwhile
	read   bool // readers were there before
}

var shapes = []shape{
	{name: "semaphore-of-1", needs: permit, claim: func(c *backend.Claim) {
		c.Mode, c.Limit = backend.Permit, 1
	}},
	{name: "semaphore-of-5", needs: permit, claim: func(c *backend.Claim) {
		c.Mode, c.Limit = backend.Permit, 5
	}, beside: 4},
	{name: "heavy-permit", needs: weight, claim: func(c *backend.Claim) {
		c.Mode, c.Limit, c.Weight = backend.Permit, 3, 2
	}},
	{name: "write-side", needs: shared, claim: func(*backend.Claim) {}, read: true},
	{name: "owners", needs: reentrant, claim: func(c *backend.Claim) {
		c.Reentrant, c.Hold = true, backend.NewOwner()
	}},
}

// mutexRules are the rules of a mutex for each shape.
func mutexRules() []rule {
	var all []rule
	basic := slices.Concat(exclusiveRules, repeatRules, releaseRules, tombstoneRules, renewRules,
		tokenRules, expiryRules)
	for _, s := range shapes {
		for _, r := range basic {
			if r.hook != nil || slices.Contains(s.exempt(), r.name) {
				continue
			}
			run := r.run
			needs := r.needs
			needs.Permit = needs.Permit || s.needs.Permit
			needs.Weight = needs.Weight || s.needs.Weight
			needs.Shared = needs.Shared || s.needs.Shared
			needs.Reentrant = needs.Reentrant || s.needs.Reentrant
			all = append(all, rule{
				name:  "as-mutex/" + s.name + "/" + strings.ReplaceAll(r.name, "/", "-"),
				needs: needs, slow: r.slow, alone: r.alone,
				run: func(e *env) { e.shape = &s; run(e) },
				why: "A " + s.name + " with one place left is a mutex, and owes what " +
					"a mutex owes. " + r.why,
			})
		}
	}
	return all
}

// exempt names the rules that look at more than exclusion.
func (s shape) exempt() []string {
	names := []string{"repeat/never-shortens"} // looks at whose lease ends first
	if s.beside > 0 {                          // others hold as well
		names = append(names, "exclusive/refusal-changes-nothing", "exclusive/held-tells",
			"token/agrees", "release/after-expiry")
	}
	return names
}

// form gives c the shape that the rule runs in.
func (e *env) form(c backend.Claim) backend.Claim {
	if e.shape != nil {
		e.shape.claim(&c)
	}
	return c
}

// crowd prepares a key for the shape: it takes the permits that others hold beside the rule, or
// lets readers come and go.
func (e *env) crowd(key string) {
	if e.shape == nil {
		return
	}
	b := e.open()
	if e.shape.read {
		c := backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: e.long, Mode: backend.Shared}
		if _, err := b.TryAcquire(e.ctx, c); err != nil {
			e.Fatalf("TryAcquire by a reader = %v", err)
		}
		e.release(b, c)
	}
	for range e.shape.beside {
		c := e.form(backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: e.long})
		if _, err := b.TryAcquire(e.ctx, c); err != nil {
			e.Fatalf("TryAcquire of a free permit = %v", err)
		}
		e.forget(b, c)
	}
}
