package backendtest

import (
	"crypto/rand"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/backend"
)

// A Harness is how the suite reaches the store under test. Only Open is needed; see the package
// comment.
type Harness struct {
	// Open returns another client of the store, as another process would have. The suite closes it.
	// It may be called concurrently. With Bubble it is called inside of a case's bubble; then
	// clients opened under one t.Name share a store, which must not be used in another bubble.
	Open func(t testing.TB) backend.Backend

	// Bubble runs cases in testing/synctest bubbles, as many at once as there are processors.
	// Otherwise they run in real time, more at once.
	Bubble bool

	// Brief leaves out what was shown when the same backend ran on another server: bad input, odd
	// keys, package locker on top, and the rules of a mutex once more for each other mode. It is
	// for further versions and topologies, beside a run without it.
	Brief bool

	// PutForeign puts data of some other program where the lock of key would be kept. intact
	// reports whether it is unchanged.
	PutForeign func(t testing.TB, key string) (intact func() bool)

	// Drop deletes everything that the store has of key's lock, behind everybody's back.
	Drop func(t testing.TB, key string)

	// Leftovers lists what is held or waits in the queue under keys that begin with prefix.
	Leftovers func(t testing.TB, prefix string) []string

	// Restart ends the store and starts it again, so that every connection breaks. It returns when
	// the store answers. What the store had may be gone.
	Restart func(t testing.TB)
}

// How many cases run at once in real time. Most of them wait most of the time, and the more so the
// longer leases take.
const (
	together       = 12
	togetherLonger = 24 // where leases take seconds
)

// Run runs the suite as subtests of t.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Open == nil {
		t.Fatal("backendtest: a Harness needs Open")
	}
	calibrate()
	s := suite{h: h, caps: capabilities(t, h), name: t.Name()}
	chosen, left := s.choose(rules(h.Bubble))
	for _, why := range left {
		t.Log("not run: " + why)
	}
	limit := together
	switch {
	case h.Bubble:
		limit = runtime.GOMAXPROCS(0) // they never wait
	case slowLeases(s.caps):
		limit = togetherLonger
	}
	s.runAll(t, chosen, limit)
}

// capabilities asks a client that is used for nothing else, as a store may belong to a bubble.
func capabilities(t *testing.T, h Harness) (caps backend.Capabilities) {
	t.Helper()
	look := func(t *testing.T) {
		b := h.Open(t)
		caps = b.Capabilities()
		if err := b.Close(); err != nil {
			t.Errorf("Close of an unused client: %v", err)
		}
	}
	if h.Bubble {
		synctest.Test(t, look)
	} else {
		look(t)
	}
	return caps
}

// A suite is one run on one backend.
type suite struct {
	h    Harness
	caps backend.Capabilities
	name string // of the test, for the command that repeats a seed
}

// choose returns the rules that apply, and the reasons why others do not.
func (s suite) choose(all []rule) (chosen []rule, left []string) {
	for _, r := range all {
		switch err := s.caps.Missing(r.needs); {
		case err != nil:
			left = append(left, r.name+": "+err.Error())
		case r.hook != nil && !r.hook(s.h):
			left = append(left, r.name+": the harness lacks a hook")
		case r.once && s.h.Brief:
			left = append(left, r.name+": the run is a brief one")
		default:
			chosen = append(chosen, r)
		}
	}
	return chosen, left
}

// runAll runs rules as subtests, so many at once (testing's own limit is the number of processors),
// and then those that need the store to themselves.
func (s suite) runAll(t *testing.T, rules []rule, limit int) {
	t.Helper()
	slots := make(chan struct{}, limit)
	var running sync.WaitGroup
	for _, r := range slices.Backward(rules) { // the last of them take longest
		if r.alone {
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			t.Run(r.name, func(t *testing.T) { s.run(t, r) })
		})
	}
	running.Wait()
	for _, r := range rules {
		if r.alone {
			t.Run(r.name, func(t *testing.T) { s.run(t, r) })
		}
	}
}

// run runs one rule, in a bubble if the harness wants that.
func (s suite) run(t *testing.T, r rule) {
	if s.h.Bubble {
		synctest.Test(t, func(t *testing.T) { s.check(t, r) })
	} else {
		s.check(t, r)
	}
}

// check runs one rule on tb, which need not be a test: whether the suite finds what it should is
// tested with a recorder.
func (s suite) check(tb testing.TB, r rule) {
	tb.Helper()
	e := newEnv(tb, s, "bt-"+strings.ToLower(rand.Text()[:10])+"-")
	defer func() {
		if tb.Failed() {
			tb.Logf("why this rule exists: %s", r.why)
		}
	}()
	defer e.close()
	r.run(e)
}
