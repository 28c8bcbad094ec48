package backendtest

import (
	"errors"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/backend"
)

var fencedInspect = backend.Capabilities{Fencing: true, Inspect: true}

// toolRules are about what tools use. A store that lacks the method says so, and is left alone.
var toolRules = []rule{
	{
		name: "list/held-and-waited-for", run: listHeld, needs: inspect,
		why: "Who looks for what stands still sees every lock that is held or waited for, and " +
			"none that is free.",
	},
	{
		name: "list/names", run: listNames, needs: inspect,
		why: "A prefix is bytes: no name is taken for a pattern, and each comes back as " +
			"it was given.",
	},
	{
		name: "force-release/holder", run: forceRelease, needs: fencedInspect,
		why: "An operator ends the hold that the token names, and no other: not the one that " +
			"came after it.",
	},
	{
		name: "force-release/one-of-several", run: forceReleaseOne,
		needs: backend.Capabilities{Fencing: true, Inspect: true, Shared: true},
		why:   "Among holders together only the one whose token it is loses the lock.",
	},
	{
		name: "force-release/re-entrant", run: forceReleaseReentrant,
		needs: backend.Capabilities{Fencing: true, Inspect: true, Reentrant: true},
		why:   "A hold of a re-entrant owner is found by its own name.",
	},
	{
		name: "force-release/next", run: forceReleaseNext,
		needs: backend.Capabilities{Fencing: true, Inspect: true, Queue: true},
		why:   "Who waits is let in, in the order of the queue, as by any release.",
	},
}

// list returns the keys that b lists under prefix; supported is false if b cannot.
func (e *env) list(b backend.Backend, prefix string) (keys []string, supported bool) {
	e.Helper()
	all := map[string]bool{}
	for l, err := range b.List(e.ctx, prefix) {
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, false
		}
		if err != nil {
			e.Fatalf("List(%s) = %v", short(prefix), err)
		}
		if len(l.State.Holders)+len(l.State.Waiters) == 0 {
			e.Errorf("List tells of %s, which nobody holds or waits for", short(l.Key))
		}
		all[l.Key] = true
	}
	return slices.Sorted(maps.Keys(all)), true
}

func listHeld(e *env) {
	a, b := e.open(), e.open()
	prefix := e.prefix + "list/"
	e.prefix = prefix
	if keys, ok := e.list(b, prefix); !ok || len(keys) > 0 {
		if ok {
			e.Errorf("List = %q before anybody holds", keys)
		}
		return
	}
	want := []string{e.key("held"), e.key("other")}
	for _, key := range want {
		e.acquire(a, e.claim(key))
	}
	freed := e.claim(e.key("freed"))
	e.acquire(a, freed)
	e.release(a, freed)
	if e.caps.Queue {
		e.stand(b, e.inLine(want[0]), 1)
	}
	keys, _ := e.list(b, prefix)
	if !slices.Equal(keys, want) {
		e.Errorf("List = %q, want %q", keys, want)
	}
	if keys, _ = e.list(b, prefix+"he"); !slices.Equal(keys, want[:1]) {
		e.Errorf("List of a longer prefix = %q, want %q", keys, want[:1])
	}
	for l, err := range b.List(e.ctx, prefix+"held") {
		if err != nil || len(l.State.Holders) != 1 || e.caps.Queue && len(l.State.Waiters) != 1 {
			e.Errorf("List tells %+v, %v", l.State, err)
		}
		break // whoever has seen enough may leave
	}
}

func listNames(e *env) {
	a, b := e.open(), e.open()
	if _, ok := e.list(b, e.prefix); !ok {
		return
	}
	names := []string{"a*", "a?", "a[b]", `a\`, "a%2F", "a/b/q/x", "a{b}", "a b", "ä", "a~"}
	for i, name := range names {
		names[i] = e.key(name)
		e.acquire(a, e.claim(names[i]))
	}
	slices.Sort(names)
	if keys, _ := e.list(b, e.prefix); !slices.Equal(keys, names) {
		e.Errorf("List = %q, want %q", keys, names)
	}
	for _, name := range names {
		if keys, _ := e.list(b, name); !slices.Equal(keys, []string{name}) {
			e.Errorf("List(%q) = %q", name, keys)
		}
	}
}

// forcible reports whether b can release another's hold.
func (e *env) forcible(b backend.Backend, key string) bool {
	_, err := b.ForceRelease(e.ctx, key, 1)
	if !errors.Is(err, errors.ErrUnsupported) {
		e.lost("ForceRelease of a free key", err)
	}
	return !errors.Is(err, errors.ErrUnsupported)
}

// seize must release the hold of key that Inspect shows with token.
func (e *env) seize(b backend.Backend, key string, token uint64) backend.Holder {
	e.Helper()
	h, err := b.ForceRelease(e.ctx, key, token)
	if err != nil || h.Token != token {
		e.Fatalf("ForceRelease of token %d = %+v, %v", token, h, err)
	}
	return h
}

func forceRelease(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	if !e.forcible(b, key) {
		return
	}
	c := e.claim(key)
	token := e.acquire(a, c).Token
	for _, other := range []uint64{0, token - 1, token + 1} {
		_, err := b.ForceRelease(e.ctx, key, other)
		e.lost("ForceRelease of another token", err)
	}
	e.renewed(a, c)
	if h := e.seize(b, key, token); h.Owner != c.Owner || h.Meta != c.Meta {
		e.Errorf("ForceRelease took it from %+v, want %q", h, c.Owner)
	}
	e.lost("Renew after ForceRelease", a.Renew(e.ctx, c))
	_, err := a.TryAcquire(e.ctx, c)
	e.lost("a repeated attempt after ForceRelease", err)
	e.lost("Release after ForceRelease", release(e.ctx, a, c))
	next := e.claim(key)
	if later := e.acquire(a, next).Token; later <= token {
		e.Errorf("token %d after %d", later, token)
	}
	_, err = b.ForceRelease(e.ctx, key, token)
	e.lost("ForceRelease of the token before", err)
	e.renewed(a, next)
}

func forceReleaseOne(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	if !e.forcible(b, key) {
		return
	}
	first, second := e.claim(key), e.claim(key)
	first.Mode, second.Mode = backend.Shared, backend.Shared
	token := e.acquire(a, first).Token
	e.acquire(a, second)
	e.seize(b, key, token)
	e.lost("Renew by the reader whose token it was", a.Renew(e.ctx, first))
	e.renewed(a, second)
}

func forceReleaseReentrant(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	if !e.forcible(b, key) {
		return
	}
	c := e.enters(key, e.prefix+"owner")
	token := e.acquire(a, c).Token
	if h := e.seize(b, key, token); h.Owner != c.Owner || h.ID != c.Hold {
		e.Errorf("ForceRelease took it from %+v, want %q, %q", h, c.Owner, c.Hold)
	}
	e.lost("Renew after ForceRelease", a.Renew(e.ctx, c))
	e.free(b, key)
}

func forceReleaseNext(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	if !e.forcible(b, key) {
		return
	}
	token := e.acquire(a, e.claim(key)).Token
	next := e.inLine(key)
	e.stand(b, next, 1)
	e.seize(a, key, token)
	if later := e.acquire(b, next).Token; later <= token {
		e.Errorf("token %d after %d", later, token)
	}
}
