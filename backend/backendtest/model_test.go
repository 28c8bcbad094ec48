package backendtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A model is a client of a store that is written for nothing but being read: it can do everything,
// slowly, and has a switch for each defect that the suite must find.
type model struct {
	backend.Base
	*modelStore
	closed atomic.Bool
}

type modelStore struct {
	defect string
	caps   backend.Capabilities

	mu      sync.Mutex
	keys    map[string]*modelKey
	token   uint64
	state   []byte // of all keys, with a defect
	watches map[*modelWatch]struct{}
}

type modelKey struct {
	foreign string
	holds   []*modelHold
	line    []modelPlace
	state   []byte
	last    string // who was granted
	token   uint64 // the last one
	lapsed  uint64 // of an exclusive hold that has run out since the last grant
	limit   int    // of a semaphore, with a defect
	stuck   int    // weight that nobody has, with a defect
	tombs   map[string]bool
}

type modelHold struct {
	claim   backend.Claim
	grant   backend.Grant
	expires time.Time
	repeats int
}

type modelPlace struct {
	claim backend.Claim
	until time.Time
}

type modelWatch struct {
	claim backend.Claim
	wake  chan backend.Wake
}

var modelCaps = backend.Capabilities{
	Shared: true, Permit: true, Weight: true, Fencing: true, Queue: true, Watch: true,
	Reentrant: true, State: true, Inspect: true, Observe: true,
	MinToken: true, TookOver: true, MinTTL: time.Millisecond,
}

// modelHarness has a store for each test, as a bubble needs it.
func modelHarness(caps backend.Capabilities, defect string) Harness {
	var mu sync.Mutex
	stores := map[string]*modelStore{}
	of := func(t testing.TB) *modelStore {
		mu.Lock()
		defer mu.Unlock()
		s := stores[t.Name()]
		if s == nil {
			s = &modelStore{
				defect: defect, caps: caps, keys: map[string]*modelKey{},
				watches: map[*modelWatch]struct{}{},
			}
			stores[t.Name()] = s
			t.Cleanup(func() { // the name is used again, in another bubble
				mu.Lock()
				defer mu.Unlock()
				delete(stores, t.Name())
			})
		}
		return s
	}
	return Harness{
		Bubble: true,
		Open:   func(t testing.TB) backend.Backend { return &model{modelStore: of(t)} },
		Drop: func(t testing.TB, key string) {
			s := of(t)
			s.mu.Lock()
			defer s.mu.Unlock()
			if delete(s.keys, key); s.is("counter dropped with the key") {
				s.token = 0
			}
		},
		PutForeign: func(t testing.TB, key string) func() bool {
			s := of(t)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.key(key).foreign = "data"
			return func() bool { return s.key(key).foreign == "data" }
		},
	}
}

func (s *modelStore) is(defect string) bool { return s.defect == defect }

func (s *modelStore) key(name string) *modelKey {
	switch {
	case s.is("case folded"):
		name = strings.ToLower(name)
	case s.is("names nested"):
		name, _, _ = strings.Cut(name, "/")
	case s.is("spaces trimmed"):
		name = strings.TrimSpace(name)
	case s.is("percent decoded"):
		name = strings.ReplaceAll(name, "%2F", "/")
	}
	if s.keys[name] == nil {
		s.keys[name] = &modelKey{tombs: map[string]bool{}}
	}
	return s.keys[name]
}

// expire drops holds and places whose time is over.
func (s *modelStore) expire(k *modelKey) {
	before, last := len(k.holds), &modelHold{}
	if before > 0 {
		last = k.holds[0]
	}
	if s.is("the weight of who died stays") {
		for _, h := range k.holds {
			if !h.expires.After(time.Now()) {
				k.stuck += max(h.claim.Weight, 1) - 1
			}
		}
	}
	if !s.is("leases never end") {
		k.holds = slices.DeleteFunc(k.holds, func(h *modelHold) bool {
			return !h.expires.After(time.Now())
		})
	}
	if before == 1 && len(k.holds) == 0 && last.claim.Mode == backend.Exclusive &&
		!last.claim.Reentrant && !s.is("nobody is told of the dead") {
		k.lapsed = last.grant.Token + uint64(last.grant.Reserved) - 1
	}
	if len(k.holds) == 0 && before > 0 && s.is("token counter forgotten at expiry") {
		s.token = 0
	}
	if len(k.holds) < before && s.is("a state goes with its lease") {
		k.state = nil
	}
	if !s.is("places never lapse") {
		k.line = slices.DeleteFunc(k.line, func(p modelPlace) bool {
			return !p.until.After(time.Now())
		})
	}
}

func (k *modelKey) of(id string) *modelHold {
	for _, h := range k.holds {
		if h.claim.ID() == id {
			return h
		}
	}
	return nil
}

// entered returns a hold of c's re-entrant owner.
func (k *modelKey) entered(c backend.Claim) *modelHold {
	for _, h := range k.holds {
		if c.Reentrant && h.claim.Reentrant && h.claim.Owner == c.Owner {
			return h
		}
	}
	return nil
}

// conflicts returns who cannot hold beside c, if anybody.
func (k *modelKey) conflicts(c backend.Claim, s *modelStore) *modelHold {
	if k.entered(c) != nil && !s.is("owners do not re-enter") {
		return nil
	}
	for _, h := range k.holds {
		together := h.claim.Mode == c.Mode && c.Mode == backend.Shared ||
			c.Mode == backend.Shared && s.is("readers beside a writer")
		if c.Mode == backend.Permit && h.claim.Mode == backend.Permit {
			together = k.weight(s)+max(c.Weight, 1) <= c.Limit || s.is("limit not counted") ||
				len(k.holds) < c.Limit && s.is("a weight counts as one")
		}
		if !together {
			return h
		}
	}
	return nil
}

// weight is that of those who hold.
func (k *modelKey) weight(s *modelStore) int {
	sum := k.stuck
	for _, h := range k.holds {
		sum += max(h.claim.Weight, 1)
		if s.is("a repeat weighs again") {
			sum += h.repeats * (max(h.claim.Weight, 1) - 1)
		}
	}
	return sum
}

// mismatch reports whether the key is used with another limit than c's.
func (k *modelKey) mismatch(c backend.Claim, lineCounts bool) bool {
	other := func(o backend.Claim) bool {
		return c.Mode == backend.Permit && o.Mode == backend.Permit && o.Limit != c.Limit
	}
	return slices.ContainsFunc(k.holds, func(h *modelHold) bool { return other(h.claim) }) ||
		lineCounts && slices.ContainsFunc(k.line, func(p modelPlace) bool { return other(p.claim) })
}

func (k *modelKey) place(id string) int {
	return slices.IndexFunc(k.line, func(p modelPlace) bool { return p.claim.ID() == id })
}

func (k *modelKey) leaveLine(id string) {
	k.line = slices.DeleteFunc(k.line, func(p modelPlace) bool { return p.claim.ID() == id })
}

// enter is what every verb begins with.
func (m *model) enter(ctx context.Context) error {
	switch {
	case m.closed.Load() && !m.is("works after Close"):
		return backend.ErrClosed
	case ctx.Err() == nil || m.is("ctx ignored"):
		return nil
	case m.is("cause instead of ctx.Err"):
		return context.Cause(ctx)
	case m.is("done ctx is a no"):
		return fmt.Errorf("%w: %w", backend.ErrLost, ctx.Err())
	}
	return ctx.Err()
}

func (m *model) Capabilities() backend.Capabilities {
	if m.is("capabilities end with Close") && m.closed.Load() {
		return backend.Capabilities{}
	}
	return m.caps
}

// validate is Claim.Validate, with holes.
func (m *model) validate(c backend.Claim) error {
	switch {
	case m.is("TTL not checked"):
		c.TTL = time.Second
	case m.is("unclaimed modes granted") && c.Mode == backend.Shared:
		c.Mode = backend.Exclusive
	case m.is("keys not checked"):
		c.Key = "k"
	case m.is("owners not checked"):
		c.Owner = "o"
	}
	return c.Validate(m.caps)
}

func (m *model) Close() error {
	if m.closed.Swap(true) && m.is("Close fails the second time") {
		return backend.ErrClosed
	}
	if m.is("Close releases") {
		m.mu.Lock()
		defer m.mu.Unlock()
		clear(m.keys)
	}
	return nil
}
