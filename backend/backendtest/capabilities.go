package backendtest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var capabilityRules = []rule{
	{
		name: "capabilities/constant", run: constantCapabilities,
		why: "Capabilities are read once, when a program starts. They are the same for every " +
			"client and ask nobody.",
	},
	{
		name: "capabilities/refused", run: refusesOthers,
		why: "What a backend does not claim it refuses with errors.ErrUnsupported, before " +
			"anything is written. A shared claim" +
			" that is granted as an exclusive one, or a queue that does not queue, is a promise " +
			"that nobody keeps.",
	},
	{
		name: "capabilities/fencing", run: fencingIsClaimed,
		why: "Without the capability the token is 0, so that no resource compares what does not " +
			"rise; with it, it is never 0.",
	},
	{
		name: "capabilities/watch", run: watchIsRefused,
		why: "A backend without wake-ups says so, by an error or a closed channel, and its " +
			"callers poll. Silence would be" +
			" taken for \"nothing happened\".",
	},
	{
		name: "capabilities/inspect", run: inspectIsRefused,
		why: "A backend that cannot look says so. An empty State would be read as \"free\".",
	},
	{
		name: "capabilities/base", run: embedsBase,
		why: "Base answers for methods that a backend does not have yet. A claim with nothing " +
			"special needs no capability.",
	},
}

func constantCapabilities(e *env) {
	a, b := e.open(), e.open()
	first := a.Capabilities()
	e.cycle(a, e.key("k"))
	if first != a.Capabilities() || first != b.Capabilities() || first != e.caps {
		e.Errorf("Capabilities differ: %+v, %+v, %+v", first, a.Capabilities(), b.Capabilities())
	}
	if first.MinTTL <= 0 || first.MinTTL > time.Hour {
		e.Errorf("MinTTL = %v, want what the store can keep, above 0", first.MinTTL)
	}
}

// needs are claims that need a capability each.
func (e *env) needs(key string) map[string]struct {
	claim backend.Claim
	need  backend.Capabilities
} {
	type needed = struct {
		claim backend.Claim
		need  backend.Capabilities
	}
	with := func(change func(*backend.Claim)) backend.Claim {
		c := e.claim(key)
		change(&c)
		return c
	}
	return map[string]needed{
		"Mode Shared": {with(func(c *backend.Claim) {
			c.Mode = backend.Shared
		}), backend.Capabilities{Shared: true}},
		"Mode Permit": {with(func(c *backend.Claim) {
			c.Mode, c.Limit = backend.Permit, 2
		}), backend.Capabilities{Permit: true}},
		"Weight": {
			with(func(c *backend.Claim) { c.Mode, c.Limit, c.Weight = backend.Permit, 2, 2 }),
			backend.Capabilities{Permit: true, Weight: true},
		},
		"Queue": {with(func(c *backend.Claim) {
			c.Queue, c.WaiterTTL = true, e.long
		}), backend.Capabilities{Queue: true}},
		"Reentrant": {with(func(c *backend.Claim) {
			c.Reentrant, c.Hold = true, backend.NewOwner()
		}), backend.Capabilities{Reentrant: true}},
		"Load": {with(func(c *backend.Claim) {
			c.Load = true
		}), backend.Capabilities{State: true}},
		"MinToken": {with(func(c *backend.Claim) {
			c.MinToken = 1
		}), backend.Capabilities{MinToken: true}},
		"NotBefore": {with(func(c *backend.Claim) {
			c.NotBefore = e.long
		}), backend.Capabilities{NotBefore: true}},
		"Save": {with(func(c *backend.Claim) {
			c.Save = []byte("x")
		}), backend.Capabilities{State: true}},
	}
}

// covers: Q12
func refusesOthers(e *env) {
	a, b := e.open(), e.open()
	for what, needed := range e.needs(e.key("k")) {
		if e.caps.Missing(needed.need) == nil {
			continue // claimed: the rules of that capability apply
		}
		_, err := a.TryAcquire(e.ctx, needed.claim)
		e.is("TryAcquire with "+what+", which the backend does not claim", err,
			errors.ErrUnsupported)
		if name := e.caps.Name; err != nil && !strings.Contains(err.Error(), name) {
			e.Errorf("TryAcquire with %s = %v, which does not name %s", what, err, name)
		}
		e.untouched(b, needed.claim.Key)
		plain := e.claim(needed.claim.Key)
		e.acquire(a, plain)
		plain.Mode, plain.Limit, plain.Queue = needed.claim.Mode, needed.claim.Limit,
			needed.claim.Queue
		plain.Reentrant, plain.Load, plain.Save = needed.claim.Reentrant, needed.claim.Load,
			needed.claim.Save
		plain.WaiterTTL, plain.Hold, plain.MinToken = needed.claim.WaiterTTL, needed.claim.Hold,
			needed.claim.MinToken
		plain.NotBefore, plain.Weight = needed.claim.NotBefore, needed.claim.Weight
		e.is("Renew with "+what+", which the backend does not claim", a.Renew(e.ctx, plain),
			errors.ErrUnsupported)
		if plain.Save != nil || plain.NotBefore != 0 {
			e.is("Release with "+what+", which the backend does not claim",
				release(e.ctx, a, plain), errors.ErrUnsupported)
		}
		plain.Mode, plain.Limit, plain.Queue, plain.Reentrant, plain.Load, plain.Save,
			plain.MinToken = 0, 0, false, false, false, nil, 0
		plain.NotBefore, plain.Weight = 0, 0
		e.release(a, plain)
	}
	if !e.caps.State {
		_, err := a.Saved(e.ctx, e.key("k"))
		e.is("Saved, which the backend does not claim", err, errors.ErrUnsupported)
	}
}

func fencingIsClaimed(e *env) {
	g := e.acquire(e.open(), e.claim(e.key("k")))
	if (g.Token != 0) != e.caps.Fencing {
		e.Errorf("token %d, with Capabilities.Fencing = %v", g.Token, e.caps.Fencing)
	}
}

func watchIsRefused(e *env) {
	a := e.open()
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	wake, err := a.Watch(ctx, e.claim(e.key("k")))
	if e.caps.Watch {
		if err != nil {
			e.Errorf("Watch = %v, with Capabilities.Watch", err)
		}
		return
	}
	if err != nil {
		e.is("Watch, which the backend does not claim", err, errors.ErrUnsupported)
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case _, open := <-wake:
		if open {
			e.Error("Watch signals, though the backend does not claim it")
		}
	case <-timer.C:
		e.Error("Watch, which the backend does not claim, neither failed nor closed its channel")
	}
}

func inspectIsRefused(e *env) {
	_, err := e.open().Inspect(e.ctx, e.key("k"))
	if e.caps.Inspect {
		if err != nil {
			e.Errorf("Inspect = %v, with Capabilities.Inspect", err)
		}
		return
	}
	e.is("Inspect, which the backend does not claim", err, errors.ErrUnsupported)
}

func embedsBase(e *env) {
	if err := e.claim(e.key("k")).Validate(e.caps); err != nil {
		e.Errorf("a plain claim needs a capability: %v", err)
	}
	e.cycle(e.open(), e.key("k"))
}
