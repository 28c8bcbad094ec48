package backendtest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/backend"
)

var tryAllRules = []rule{
	{
		name: "try-all/free", run: tryAllFree, needs: fencing,
		why: "Free keys that are taken together are held as if each had been taken alone, by its " +
			"own claim and with its own token.",
	},
	{
		name: "try-all/first", run: tryAllFirst,
		why: "Nothing is taken behind a key that another holds: whoever waits for that would " +
			"hold what others may wait for.",
	},
	{
		name: "try-all/late", run: tryAllLate,
		why: "An attempt that comes after its release holds nothing, and no key is granted twice.",
	},
	{
		name: "try-all/own", run: tryAllOwn,
		why: "A release of many keys ends nothing of another's, and says no for what was lost.",
	},
	{
		name: "try-all/waited", run: tryAllWaited, needs: backend.Capabilities{Queue: true},
		why: "A key that somebody waits for is left to Release, which lets in who is next.",
	},
	{
		name: "try-all/wakes", run: tryAllWakes, needs: watch,
		why: "Who watches a key hears that it is free, also when it was released among others.",
	},
	{
		name: "try-all/input", run: tryAllInput,
		why: "What is too much, or asks for more, is refused before anything is written, and of " +
			"none a store only says whether it can.",
	},
}

// oneByOne reports whether the store has no request for many keys: then there is nothing to see.
func (e *env) oneByOne(b backend.Backend) bool {
	_, err := b.TryAcquireAll(e.ctx, nil)
	if !errors.Is(err, errors.ErrUnsupported) {
		return false
	}
	e.Log("each claim has to be asked for by itself: ", err)
	return true
}

// tryAll asks for claims together, and says which of them were granted. It reports false where
// there was no answer:
// then it has asked for each by itself, up to the first that was refused.
func (e *env) tryAll(b backend.Backend, claims ...backend.Claim) ([]backend.Grant, bool) {
	e.Helper()
	for _, c := range claims {
		e.forget(b, c)
	}
	grants, err := b.TryAcquireAll(e.ctx, claims)
	switch {
	case slowness > 1.5 && !e.h.Bubble && !answer(err):
		e.Log("each claim is asked for by itself: ", err)
		for i := range claims {
			var g backend.Grant
			if err := e.answered(func() (err error) {
				g, err = b.TryAcquire(e.ctx, claims[i])
				return err
			}); err != nil {
				break
			}
			grants = append(grants, g)
		}
		return grants, false
	case err != nil || len(grants) > len(claims):
		e.Fatalf("TryAcquireAll of %d claims = %v, %v", len(claims), grants, err)
	}
	return grants, true
}

// tryReleaseAll releases claims together, and says which were. It reports false where there was no
// answer: then it has released each by itself.
func (e *env) tryReleaseAll(b backend.Backend, claims ...backend.Claim) ([]bool, bool) {
	e.Helper()
	claims = slices.Clone(claims)
	for i := range claims {
		claims[i].NoneInFlight = true
	}
	released, err := b.TryReleaseAll(e.ctx, claims)
	switch {
	case slowness > 1.5 && !e.h.Bubble && !answer(err):
		e.Log("each claim is released by itself: ", err)
		for i := range claims {
			_ = e.answered(func() error { _, err := b.Release(e.ctx, claims[i]); return err })
		}
		return nil, false
	case err != nil || len(released) != len(claims):
		e.Fatalf("TryReleaseAll of %d claims = %v, %v", len(claims), released, err)
	}
	return released, true
}

// gone must be what TryReleaseAll says of claims that held as want says. A yes where it is false is
// a lock that was lost, or another's, and its holder is told that all went well.
func (e *env) gone(released, want []bool) {
	e.Helper()
	if slices.Equal(released, want) {
		return
	}
	for i, yes := range released {
		if yes && !want[i] {
			e.broken("TryReleaseAll says that claim %d held, which it did not: %v", i, released)
		}
	}
	e.Errorf("TryReleaseAll = %v, want %v", released, want)
}

// claims returns a fresh claim for each of n keys, which begin with name.
func (e *env) claims(name string, n int) []backend.Claim {
	claims := make([]backend.Claim, n)
	for i := range claims {
		claims[i] = e.claim(e.key(fmt.Sprint(name, i)))
	}
	return claims
}

// covers: B1, C1, C3
func tryAllFree(e *env) {
	a, b := e.open(), e.open()
	if e.oneByOne(a) {
		return
	}
	claims := e.claims("k", 5)
	claims[4].Reserve = 3
	var before uint64
	for range 2 { // the keys are new, and then they are free again
		grants, ok := e.tryAll(a, claims...)
		if len(grants) != len(claims) {
			e.Fatalf("TryAcquireAll of free keys = %+v", grants)
		}
		for i, c := range claims {
			first, last := grants[i].Token, grants[i].Token+uint64(max(grants[i].Reserved, 1))-1
			if held := e.held(b, e.claim(c.Key)); held.Token != 0 &&
				(held.Token < first || held.Token > last) {
				e.Errorf("%s is held with token %d, and %+v was granted", short(c.Key), held.Token,
					grants[i])
			}
			if again := e.acquire(a, c); again.Token != grants[i].Token ||
				again.Reserved > max(c.Reserve, 1) {
				e.broken("a repeat of %+v = %+v", grants[i], again)
			}
			e.renewed(a, c)
		}
		before = e.above(before, grants[0])
		if released, answered := e.tryReleaseAll(a, claims...); ok && answered &&
			slices.Contains(released, false) {
			e.Errorf("TryReleaseAll of what is held = %v", released)
		}
		for i := range claims {
			e.free(b, claims[i].Key)
			claims[i].Owner = backend.NewOwner()
		}
	}
}

// covers: B1, D3
func tryAllFirst(e *env) {
	a, b := e.open(), e.open()
	if e.oneByOne(a) {
		return
	}
	for at := range 3 {
		claims := e.claims(fmt.Sprint(at, "-"), 3)
		holder := e.claim(claims[at].Key)
		held := e.acquire(b, holder)
		grants, ok := e.tryAll(a, claims...)
		switch {
		case len(grants) > at:
			e.broken("number %d is held, and TryAcquireAll = %+v", at, grants)
		case len(grants) < at:
			e.Errorf("number %d is held, and TryAcquireAll = %+v", at, grants)
		}
		for _, c := range claims[at+1:] {
			e.free(b, c.Key)
		}
		e.renewed(b, holder)
		if found := e.held(a, claims[at]); found.Token != 0 && found.Token != held.Token {
			e.Errorf("token %d is held, want %d", found.Token, held.Token)
		}
		want := []bool{true, true, true}
		for i := range want {
			want[i] = i < at
		}
		if released, answered := e.tryReleaseAll(a, claims...); ok && answered {
			e.gone(released, want)
		}
		e.release(b, holder)
		for _, c := range claims {
			e.free(b, c.Key)
		}
	}
}

// covers: A4, C9
func tryAllLate(e *env) {
	a, b := e.open(), e.open()
	if e.oneByOne(a) {
		return
	}
	claims := e.claims("k", 2)
	if _, err := a.Release(e.ctx, claims[0]); !errors.Is(err, backend.ErrLost) { // with a tombstone
		e.Fatalf("Release of what never held = %v", err)
	}
	if grants, _ := e.tryAll(a, claims...); len(grants) != 0 {
		e.Errorf("TryAcquireAll after a release of the first = %+v", grants)
	}
	for _, c := range claims {
		e.free(b, c.Key)
	}
	twice, another := e.claim(e.key("twice")), e.claim(e.key("twice"))
	if grants, ok := e.tryAll(a, twice, another); len(grants) > 1 {
		e.broken("TryAcquireAll of two claims of one key = %+v", grants)
	} else if ok && len(grants) != 1 {
		e.Errorf("TryAcquireAll of two claims of one key = %+v", grants)
	}
	if released, ok := e.tryReleaseAll(a, another, twice, twice); ok {
		e.gone(released, []bool{false, true, false})
	}
	e.free(b, twice.Key)
}

// covers: C1, C2
func tryAllOwn(e *env) {
	a, b := e.open(), e.open()
	if e.oneByOne(a) {
		return
	}
	mine, theirs, lapsed := e.claim(e.key("mine")), e.claim(e.key("theirs")),
		e.brief(e.key("lapsed"))
	for _, c := range []backend.Claim{mine, lapsed} {
		e.acquire(a, c)
	}
	e.acquire(b, theirs)
	next := e.claim(lapsed.Key)
	e.await("the end of a lease", patience+2*lapsed.TTL, func() bool {
		_, err := b.TryAcquire(e.ctx, next)
		e.forget(b, next)
		return err == nil
	})
	stranger, never := e.claim(theirs.Key), e.claim(e.key("never"))
	if released, ok := e.tryReleaseAll(a, stranger, mine, lapsed, never); ok {
		e.gone(released, []bool{false, true, false, false})
	}
	for _, c := range []backend.Claim{theirs, next} {
		e.renewed(b, c)
	}
	e.free(b, mine.Key)
}

// covers: W5, W7
func tryAllWaited(e *env) {
	a, b := e.open(), e.open()
	if e.oneByOne(a) {
		return
	}
	claims := e.claims("k", 2)
	for _, c := range claims {
		e.acquire(a, c)
	}
	waits := e.queued(b, claims[0].Key, e.long)
	defer e.forgetAll(b, waits)
	together := slices.Clone(claims)
	for i := range together {
		together[i].NoneInFlight = true
	}
	released, err := a.TryReleaseAll(e.ctx, together)
	if want := []bool{false, true}; err != nil || !slices.Equal(released, want) {
		e.Fatalf("TryReleaseAll with a waiter behind the first = %v, %v, want %v", released, err,
			want)
	}
	e.renewed(a, claims[0])
	if grants, _ := e.tryAll(a, e.claim(claims[0].Key), e.claim(claims[1].Key)); len(grants) != 0 {
		e.Errorf("TryAcquireAll of a key that another waits for = %+v", grants)
	}
	e.release(a, claims[0])
	e.acquire(b, waits)
	e.release(b, waits)
	e.free(a, claims[0].Key)
}

// covers: W1
func tryAllWakes(e *env) {
	a, b := e.open(), e.open()
	if e.oneByOne(a) {
		return
	}
	claims := e.claims("k", 2)
	for _, c := range claims {
		e.acquire(a, c)
	}
	watcher := e.claim(claims[1].Key)
	wake, _ := e.watch(b, watcher)
	e.held(b, watcher)
	e.tryReleaseAll(a, claims...)
	if !e.woken(wake, patience) {
		e.Error("the key was released, and who watches was not woken")
	}
	for _, c := range claims {
		e.free(b, c.Key)
	}
}

func tryAllInput(e *env) {
	b := e.open()
	_, none := b.TryAcquireAll(e.ctx, nil)
	_, alsoNone := b.TryReleaseAll(e.ctx, nil)
	for _, err := range []error{none, alsoNone} {
		if err != nil && !errors.Is(err, errors.ErrUnsupported) || (err == nil) != (none == nil) {
			e.Errorf("TryAcquireAll of no claims = %v, and TryReleaseAll %v", none, alsoNone)
		}
	}
	if none != nil {
		return
	}
	one := e.claim(e.key("one"))
	for what, change := range map[string]func(*backend.Claim){
		"shared": func(c *backend.Claim) {
			c.Mode = backend.Shared
		}, "re-entrant": func(c *backend.Claim) { c.Reentrant, c.Hold = true, c.Owner },
		"queues": func(c *backend.Claim) {
			c.Queue, c.WaiterTTL = true, c.TTL
		}, "loads": func(c *backend.Claim) { c.Load = true },
		"saves": func(c *backend.Claim) {
			c.Save = []byte("x")
		}, "is a job": func(c *backend.Claim) { c.NotBefore = e.long },
		"asks for a token": func(c *backend.Claim) {
			c.MinToken = 1
		}, "has no name": func(c *backend.Claim) { c.Owner = "" },
	} {
		other := e.claim(e.key("other"))
		change(&other)
		if grants, err := b.TryAcquireAll(e.ctx, []backend.Claim{one, other}); len(grants) != 0 ||
			!refusedAsInput(err) {
			e.Errorf("TryAcquireAll beside a claim that %s = %v, %v, want ErrInvalid", what, grants,
				err)
		}
	}
	e.free(b, one.Key)
	for what, change := range map[string]func(*backend.Claim){
		"may be in flight": func(c *backend.Claim) {
			c.NoneInFlight = false
		}, "saves": func(c *backend.Claim) { c.Save = []byte("x") },
		"is a job": func(c *backend.Claim) {
			c.NotBefore = e.long
		}, "has no name": func(c *backend.Claim) { c.Owner = "" },
	} {
		e.acquire(b, one)
		one.NoneInFlight = true
		other := e.claim(e.key("other"))
		other.NoneInFlight = true
		change(&other)
		if released, err := b.TryReleaseAll(e.ctx,
			[]backend.Claim{one, other}); len(released) != 0 || !refusedAsInput(err) {
			e.Errorf("TryReleaseAll beside a claim that %s = %v, %v, want ErrInvalid", what,
				released, err)
		}
		e.release(b, one)
		one.Owner = backend.NewOwner()
	}
	many := e.claims("k", backend.MaxTryAll+1)
	if _, err := b.TryAcquireAll(e.ctx, many); !errors.Is(err, backend.ErrInvalid) {
		e.Errorf("TryAcquireAll of %d claims = %v, want ErrInvalid", len(many), err)
	}
	most := many[:backend.MaxTryAll]
	if grants, ok := e.tryAll(b, most...); ok && len(grants) != len(most) {
		e.Errorf("TryAcquireAll of %d claims grants %d", len(most), len(grants))
	}
	for i := range many {
		many[i].NoneInFlight = true
	}
	if _, err := b.TryReleaseAll(e.ctx, many); !errors.Is(err, backend.ErrInvalid) {
		e.Errorf("TryReleaseAll of %d claims = %v, want ErrInvalid", len(many), err)
	}
	if released, ok := e.tryReleaseAll(b, most...); ok && slices.Contains(released, false) {
		e.Errorf("TryReleaseAll of %d claims = %v", len(most), released)
	}
}

// refusedAsInput reports whether a claim was refused for what it asks for, which the store may not
// have either.
func refusedAsInput(err error) bool {
	return errors.Is(err, backend.ErrInvalid) || errors.Is(err, errors.ErrUnsupported)
}
