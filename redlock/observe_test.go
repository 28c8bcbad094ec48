package redlock_test

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/redlock"
)

// A telling node is one whose Observe a test can replace.
type telling struct {
	backend.Backend
	observe func(ctx context.Context, key string) iter.Seq2[backend.State, error]
}

func (n *telling) Observe(ctx context.Context, key string) iter.Seq2[backend.State, error] {
	if n.observe != nil {
		return n.observe(ctx, key)
	}
	return n.Backend.Observe(ctx, key)
}

// quorumOf runs test in a bubble, on a quorum of three nodes in memory.
func quorumOf(t *testing.T, change func(nodes []*telling),
	test func(t *testing.T, nodes []*telling, seen func() (owner string, err error)),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var nodes []*telling
		var backends []backend.Backend
		for range 3 {
			nodes = append(nodes, &telling{Backend: membackend.New()})
			backends = append(backends, nodes[len(nodes)-1])
		}
		change(nodes)
		r, err := redlock.New(backends, redlock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var owner string
		var last error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for state, err := range r.Observe(ctx, "k") {
				mu.Lock()
				owner, last = "", err
				for _, h := range state.Holders {
					owner += h.Owner
				}
				mu.Unlock()
			}
		}()
		time.Sleep(time.Minute)
		test(t, nodes, func() (string, error) {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return owner, last
		})
		cancel()
		<-ended
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

func held(t *testing.T, n *telling, c backend.Claim) {
	t.Helper()
	if _, err := n.TryAcquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// A hold is there from when a majority tells of it until the others are no majority.
func TestObserveByMajority(t *testing.T) {
	quorumOf(t, func([]*telling) {},
		func(t *testing.T, nodes []*telling, seen func() (string, error)) {
			c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
			for i, want := range []string{"", c.Owner, c.Owner} {
				held(t, nodes[i], c)
				if owner, err := seen(); owner != want || err != nil {
					t.Errorf("on %d nodes: %q, %v; want %q", i+1, owner, err, want)
				}
			}
			for i, want := range []string{c.Owner, "", ""} {
				if _, err := nodes[i].Release(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				if owner, err := seen(); owner != want || err != nil {
					t.Errorf("on %d nodes: %q, %v; want %q", 2-i, owner, err, want)
				}
			}
		})
}

// A minority that fails, is silent, or tells of no changes is made up for by the others; a majority
// that does is an error.
func TestObserveWithoutANode(t *testing.T) {
	for name, observe := range map[string]func(context.Context, string) iter.Seq2[backend.State,
		error]{
		"fails": func(context.Context, string) iter.Seq2[backend.State, error] {
			return func(yield func(backend.State, error) bool) {
				yield(backend.State{}, backend.ErrUnavailable)
			}
		},
		"silent": func(ctx context.Context, _ string) iter.Seq2[backend.State, error] {
			return func(func(backend.State, error) bool) { <-ctx.Done() }
		},
		"unsupported": backend.Base{}.Observe,
	} {
		t.Run(name, func(t *testing.T) {
			one := func(nodes []*telling) { nodes[2].observe = observe }
			quorumOf(t, one, func(t *testing.T, nodes []*telling, seen func() (string, error)) {
				c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
				held(t, nodes[0], c)
				if owner, err := seen(); owner != "" || err != nil {
					t.Errorf("on one node of three: %q, %v", owner, err)
				}
				held(t, nodes[1], c)
				if owner, err := seen(); owner != c.Owner || err != nil {
					t.Errorf("on a majority: %q, %v", owner, err)
				}
			})
			two := func(nodes []*telling) { nodes[1].observe, nodes[2].observe = observe, observe }
			quorumOf(t, two, func(t *testing.T, _ []*telling, seen func() (string, error)) {
				_, err := seen()
				if err == nil || (name == "unsupported") != errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("without a majority: %v", err)
				}
			})
		})
	}
}

// A node that tells of a hold when others tell of its end makes no second hold of it.
func TestObserveTellsOfAHoldOnce(t *testing.T) {
	quorumOf(t, func([]*telling) {},
		func(t *testing.T, nodes []*telling, seen func() (string, error)) {
			c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
			held(t, nodes[0], c)
			held(t, nodes[1], c)
			if owner, err := seen(); owner != c.Owner || err != nil {
				t.Errorf("on two nodes of three: %q, %v", owner, err)
			}
			for _, step := range []struct {
				node int
				ends bool
				want string
			}{{0, true, c.Owner}, {2, false, c.Owner}, {1, true, ""}, {2, true, ""}} {
				if !step.ends {
					held(t, nodes[step.node], c)
				} else if _, err := nodes[step.node].Release(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				if owner, err := seen(); owner != step.want || err != nil {
					t.Errorf("after %+v: %q, %v", step, owner, err)
				}
			}
		})
}

// A majority of the next holder ends a hold of which a node still tells.
func TestObserveTheNextHolder(t *testing.T) {
	quorumOf(t, func([]*telling) {},
		func(t *testing.T, nodes []*telling, seen func() (string, error)) {
			c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
			next := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
			held(t, nodes[0], c)
			held(t, nodes[1], c)
			_, _ = seen() // both have told
			if _, err := nodes[0].Release(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			held(t, nodes[0], next)
			if owner, err := seen(); owner != c.Owner || err != nil {
				t.Errorf("on one node of three: %q, %v", owner, err)
			}
			held(t, nodes[2], next)
			if owner, err := seen(); owner != next.Owner || err != nil {
				t.Errorf("on two nodes of three: %q, %v", owner, err)
			}
		})
}

// A node that has failed ends no hold of which another tells, and keeps none of which nobody does.
func TestObserveForgetsAFailedNode(t *testing.T) {
	c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
	fail := make(chan struct{})
	first := func(nodes []*telling) {
		fail = make(chan struct{})
		held := backend.State{Holders: []backend.Holder{{
			Owner: c.Owner, ID: c.Owner, Token: 7,
			TTL: time.Hour,
		}}}
		nodes[0].observe = func(ctx context.Context, _ string) iter.Seq2[backend.State, error] {
			return func(yield func(backend.State, error) bool) {
				select {
				case <-fail:
					yield(backend.State{}, backend.ErrUnavailable)
					return
				default:
				}
				if !yield(held, nil) {
					return
				}
				select {
				case <-fail:
					yield(backend.State{}, backend.ErrUnavailable)
				case <-ctx.Done():
				}
			}
		}
	}
	quorumOf(t, first, func(t *testing.T, nodes []*telling, seen func() (string, error)) {
		held(t, nodes[1], c)
		if owner, err := seen(); owner != c.Owner || err != nil {
			t.Errorf("on a majority: %q, %v", owner, err)
		}
		close(fail)
		if owner, err := seen(); owner != c.Owner || err != nil {
			t.Errorf("after one of two has failed: %q, %v", owner, err)
		}
		if _, err := nodes[1].Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if owner, err := seen(); owner != "" || err != nil {
			t.Errorf("after the other has told of the end: %q, %v", owner, err)
		}
	})
}

// While too few nodes tell, nobody knows who holds: whoever heard of that is told when it is known
// again, also if it is the holder from before.
func TestObserveAfterAnOutage(t *testing.T) {
	held := backend.State{Holders: []backend.Holder{{Owner: "o", ID: "o", TTL: time.Hour}}}
	var tells []chan error // what a node tells next: nil is held
	two := func(nodes []*telling) {
		for _, n := range nodes[1:] {
			next := make(chan error)
			tells = append(tells, next)
			n.observe = func(ctx context.Context, _ string) iter.Seq2[backend.State, error] {
				return func(yield func(backend.State, error) bool) {
					for {
						select {
						case err := <-next:
							if err != nil {
								yield(backend.State{}, err)
								return
							}
							if !yield(held, nil) {
								return
							}
						case <-ctx.Done():
							return
						}
					}
				}
			}
		}
	}
	quorumOf(t, two, func(t *testing.T, _ []*telling, seen func() (string, error)) {
		for _, says := range []error{nil, backend.ErrUnavailable, nil} {
			for _, node := range tells {
				node <- says
			}
			if owner, err := seen(); (owner == "o") != (says == nil) || !errors.Is(err, says) {
				t.Errorf("when two of three say %v: %q, %v", says, owner, err)
			}
		}
	})
}

// A loop that panics leaves no node observed.
func TestObserveInALoopThatPanics(t *testing.T) {
	var observed atomic.Int64
	quorumOf(t, func(nodes []*telling) {
		for _, n := range nodes {
			n.observe = func(ctx context.Context, key string) iter.Seq2[backend.State, error] {
				return func(yield func(backend.State, error) bool) {
					observed.Add(1)
					defer observed.Add(-1)
					n.Backend.Observe(ctx, key)(yield)
				}
			}
		}
	}, func(t *testing.T, nodes []*telling, _ func() (string, error)) {
		before := observed.Load() // by the observer that every test has
		r, err := redlock.New([]backend.Backend{nodes[0], nodes[1], nodes[2]}, redlock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { _ = recover() }()
			for _, err := range r.Observe(t.Context(), "k") {
				panic(err) // in the loop, whatever it is
			}
		}()
		if now := observed.Load(); now != before || before != 3 {
			t.Errorf("%d observations go on", now-before)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}
