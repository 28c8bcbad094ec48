package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var observe = backend.Capabilities{Observe: true, Inspect: true}

func observeAnd(c backend.Capabilities) backend.Capabilities {
	c.Observe, c.Inspect = true, true
	return c
}

var observeRules = []rule{
	{
		name: "observe/now", run: observeNow, needs: observe,
		why: "Whoever begins to observe is told at once how it is. One who has to wait for the " +
			"next change does not know who leads.",
	},
	{
		name: "observe/every-hold", run: observeEveryHold, needs: observe,
		why: "Ten holds that follow one another are ten. (A look each second, or when a release " +
			"is announced, saw three of them.)",
	},
	{
		name: "observe/one-hold", run: observeOneHold, needs: observe,
		why: "A hold that is renewed is one hold, and who is refused is none.",
	},
	{
		name: "observe/shared", run: observeShared,
		needs: observeAnd(backend.Capabilities{Shared: true}),
		why:   "Each of several who hold together comes and goes by itself.",
	},
	{
		name: "observe/handed-over", run: observeHandedOver,
		needs: observeAnd(backend.Capabilities{Queue: true}),
		why: "A lock that is handed over from waiter to waiter is never free, and each of " +
			"them has held it.",
	},
	{
		name: "observe/by-force", run: observeForce,
		needs: observeAnd(backend.Capabilities{Fencing: true}),
		why:   "A hold that was ended by force has ended.",
	},
	{
		name: "observe/expiry", run: observeExpiry, needs: observe,
		why: "The end of a lease ends its hold, though nobody writes anything then: a leader " +
			"that has died leads no more.",
	},
	{
		name: "observe/dropped", run: observeDropped, needs: observe, hook: hasDrop,
		why: "What was deleted behind everybody's back is held no more.",
	},
	{
		name: "observe/other-keys", run: observeOtherKeys, needs: observe,
		why: "A key is told of alone, and not those whose names begin like it.",
	},
	{
		name: "observe/ends", run: observeEnds, needs: observe,
		why: "It ends with ctx, by an error that says so, or when the caller leaves; and nothing " +
			"is left behind of it.",
	},
	{
		name: "observe/closed", run: observeClosed, needs: observe,
		why: "Close ends it, though its ctx goes on: whoever follows would wait for ever.",
	},
	{
		name: "observe/restart", run: observeRestart, needs: observe, hook: hasRestart, alone: true,
		why: "A store that was restarted is observed again. Whoever prints who leads " +
			"runs for months.",
	},
	{
		name: "observe/unsupported", run: observeRefused,
		why: "A store that tells of no changes says so, and its callers look. Silence would be " +
			"taken for \"nothing happened\".",
	},
}

// An observer notes what it is told.
type observer struct {
	stop  atomic.Bool
	leave context.CancelFunc
	ended chan struct{}

	mu     sync.Mutex
	states []backend.State
	errs   []error
}

// observe observes key until the rule's end. It returns when the first state is there.
func (e *env) observe(b backend.Backend, key string) *observer {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	o := &observer{leave: cancel, ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		for state, err := range b.Observe(ctx, key) {
			if o.note(state, err); o.stop.Load() {
				break
			}
		}
	}()
	e.later(func() {
		o.stop.Store(true)
		cancel()
		<-o.ended
	})
	e.await("the first state of "+short(key), patience, func() bool { return len(o.all()) > 0 })
	return o
}

func (o *observer) note(state backend.State, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.errs = append(o.errs, err)
	} else {
		o.states = append(o.states, state)
	}
}

func (o *observer) all() []backend.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.states
}

// failures are the errors so far.
func (o *observer) failures() []error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.errs
}

// holders are the owners in the last state.
func (o *observer) holders() map[string]bool {
	now := map[string]bool{}
	if all := o.all(); len(all) > 0 {
		for _, h := range all[len(all)-1].Holders {
			now[h.Owner] = true
		}
	}
	return now
}

// begun counts how often a hold of owner has begun.
func (o *observer) begun(owner string) (times int) {
	before := false
	for _, s := range o.all() {
		now := false
		for _, h := range s.Holders {
			now = now || h.Owner == owner
		}
		if now && !before {
			times++
		}
		before = now
	}
	return times
}

// taken counts how often the key came to be held after it was free.
func (o *observer) taken() (times int) {
	held := false
	for _, s := range o.all() {
		before := held
		if held = len(s.Holders) > 0; held && !before {
			times++
		}
	}
	return times
}

// sees waits until o has seen exactly these claims hold, and tells for how long that was.
func (e *env) sees(o *observer, claims ...backend.Claim) time.Duration {
	e.Helper()
	start := time.Now()
	e.await(fmt.Sprintf("%d who hold to be observed", len(claims)), 4*e.short+patience,
		func() bool {
			now := o.holders()
			for _, c := range claims {
				if !now[c.Owner] {
					return false
				}
			}
			return len(now) == len(claims)
		})
	return time.Since(start)
}

// observed must have seen each claim hold once.
func (e *env) observed(o *observer, claims ...backend.Claim) {
	e.Helper()
	for i, c := range claims {
		if n := o.begun(c.Owner); n != 1 {
			e.Errorf("hold %d of %d was seen to begin %d times, want once", i+1, len(claims), n)
		}
	}
	if errs := o.failures(); len(errs) > 0 {
		e.Errorf("errors while nothing was wrong: %v", errs)
	}
}

func observeNow(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	free := e.observe(b, key)
	if first := free.all()[0]; len(first.Holders) != 0 {
		e.Errorf("the first state of a free key has %+v", first.Holders)
	}
	c := e.claim(key)
	g := e.acquire(a, c)
	first := e.observe(b, key).all()[0]
	if len(first.Holders) != 1 {
		e.Fatalf("the first state of a held key is %+v, want one holder", first)
	}
	h := first.Holders[0]
	if h.Owner != c.Owner || h.ID != c.ID() || h.Meta != c.Meta ||
		e.caps.Fencing && h.Token != g.Token {
		e.Errorf("holder %+v, want token %d of %+v", h, g.Token, c)
	}
	if h.TTL <= 0 || h.TTL > e.roundedUp(g.TTL) {
		e.Errorf("%v remain of a lease of %v", h.TTL, g.TTL)
	}
}

// prompt is within what most of the changes of a key must be seen: many round trips, and too short
// for a look now and then.
const prompt = 250 * time.Millisecond

// shortHold is much longer than by how much the nodes of a quorum differ in telling of a change.
const shortHold = 100 * time.Millisecond

// A hold lasts until it was seen, as a machine may stand still for longer than any hold, and for a
// shortHold more, as one that ends before each node of a quorum told of it may be seen to begin
// twice.
func observeEveryHold(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	o := e.observe(b, key)
	var claims []backend.Claim
	var took []time.Duration
	for range 10 {
		c := e.claim(key)
		e.acquire(a, c)
		took = append(took, e.sees(o, c))
		e.pause(slower(shortHold))
		e.release(a, c)
		took = append(took, e.sees(o))
		e.pause(slower(shortHold))
		claims = append(claims, c)
	}
	e.observed(o, claims...)
	if n := o.taken(); n != len(claims) {
		e.Errorf("taken %d times while it was free, want %d", n, len(claims))
	}
	slices.Sort(took)
	if median := took[len(took)/2]; median > prompt {
		e.Errorf("half of %d changes were seen after %v or more, want %v: %v", len(took), median,
			prompt, took)
	}
}

func observeOneHold(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	o := e.observe(b, key)
	c := e.claim(key)
	e.acquire(a, c)
	for range 5 {
		e.renewed(a, c)
		e.refused(b, e.claim(key))
	}
	e.sees(o, c)
	e.release(a, c)
	e.sees(o)
	e.observed(o, c)
	for _, s := range o.all() {
		if len(s.Holders) > 1 || len(s.Holders) == 1 && s.Holders[0].Owner != c.Owner {
			e.Errorf("holders %+v, want none but %q", s.Holders, c.Owner)
		}
	}
}

func observeShared(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	o := e.observe(b, key)
	first, second := e.claim(key), e.claim(key)
	first.Mode, second.Mode = backend.Shared, backend.Shared
	e.acquire(a, first)
	e.sees(o, first)
	e.acquire(a, second)
	e.sees(o, first, second)
	e.release(a, first)
	e.sees(o, second)
	e.release(a, second)
	e.sees(o)
	e.observed(o, first, second)
}

func observeHandedOver(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	o := e.observe(b, key)
	claims := []backend.Claim{e.claim(key)}
	e.acquire(a, claims[0])
	for i := range 3 {
		next := e.inLine(key)
		e.stand(a, next, i+1)
		claims = append(claims, next)
	}
	e.sees(o, claims[0])
	for i, c := range claims {
		e.release(a, c)
		if i+1 < len(claims) {
			e.acquire(a, claims[i+1])
			e.sees(o, claims[i+1])
		}
	}
	e.sees(o)
	e.observed(o, claims...)
	if n := o.taken(); n != 1 {
		e.Errorf("taken %d times while it was free, want once: it was handed over", n)
	}
}

func observeForce(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	if !e.forcible(b, key) {
		return
	}
	o := e.observe(b, key)
	c := e.claim(key)
	g := e.acquire(a, c)
	e.sees(o, c)
	e.seize(b, key, g.Token)
	e.sees(o)
	e.observed(o, c)
}

func observeExpiry(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	o := e.observe(b, key)
	c := e.brief(key)
	e.acquire(a, c)
	e.sees(o, c)
	e.aside(func() {
		e.sees(o)
		e.observed(o, c)
	})
}

func observeDropped(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	o := e.observe(b, key)
	c := e.claim(key)
	e.acquire(a, c)
	e.sees(o, c)
	e.h.Drop(e, key)
	e.sees(o)
	e.observed(o, c)
}

func observeOtherKeys(e *env) {
	a, b := e.open(), e.open()
	key, longer := e.key("k"), e.key("k2")
	o := e.observe(b, key)
	other, c := e.claim(longer), e.claim(key)
	e.acquire(a, other)
	e.release(a, other)
	e.acquire(a, c)
	e.sees(o, c)
	if n := o.begun(other.Owner); n != 0 {
		e.Errorf("a hold of %s is told of as one of %s", short(longer), short(key))
	}
}

func observeEnds(e *env) {
	b := e.open()
	key := e.key("k")
	for _, err := range b.Observe(e.ctx, "") {
		e.is("Observe of no key", err, backend.ErrInvalid)
	}
	done, cancel := context.WithCancel(e.ctx)
	cancel()
	n := 0
	for _, err := range b.Observe(done, key) {
		e.is("Observe with a ctx that is done", err, context.Canceled)
		n++
	}
	if n != 1 {
		e.Errorf("%d elements with a ctx that is done, want its error", n)
	}
	for _, err := range b.Observe(e.ctx, key) {
		if err != nil {
			e.Errorf("Observe = %v", err)
		}
		break
	}
	o := e.observe(b, key)
	o.leave()
	e.await("the end of an observation whose ctx is done", patience, func() bool {
		return isClosed(o.ended)
	})
	if errs := o.failures(); len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
		e.Errorf("it ended with %v, want ctx's error", errs)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func observeClosed(e *env) {
	a := e.h.Open(e)
	o := e.observe(a, e.key("k"))
	if err := a.Close(); err != nil {
		e.Errorf("Close = %v", err)
	}
	e.await("the end of an observation whose client is closed", patience, func() bool {
		return isClosed(o.ended)
	})
	if errs := o.failures(); len(errs) == 0 || !errors.Is(errs[len(errs)-1], backend.ErrClosed) {
		e.Errorf("it ended with %v, want ErrClosed", errs)
	}
	for _, err := range a.Observe(e.ctx, e.key("k")) {
		e.is("Observe after Close", err, backend.ErrClosed)
	}
}

func observeRestart(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	o := e.observe(b, key)
	for range 2 {
		e.h.Restart(e)
		c := e.claim(key)
		e.await("a grant after the restart", patience, func() bool {
			_, err := a.TryAcquire(e.ctx, c)
			return err == nil
		})
		e.forget(a, c)
		e.sees(o, c)
		e.release(a, c)
		e.sees(o)
	}
}

func observeRefused(e *env) {
	b := e.open()
	n := 0
	for _, err := range b.Observe(e.ctx, e.key("k")) {
		if n++; e.caps.Observe && err == nil {
			return
		}
		e.is("Observe", err, errors.ErrUnsupported)
	}
	if n == 0 || e.caps.Observe {
		e.Errorf("Observe ended after %d elements, with Capabilities.Observe = %v", n,
			e.caps.Observe)
	}
}
