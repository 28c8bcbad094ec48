package simulation

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A stamp is a client's way to a node. It notes in which order the client sends, and lets a paused
// client neither send nor hear. What it sends of the client's wall clock, which is the token that
// it asks for, is by a clock that is set differently.
type stamp struct {
	backend.Backend
	c    *client
	node int

	mu       sync.Mutex
	requests int
	owners   map[string]int // the number of each one's first request, as names are not the seed's
}

type sentKey struct{}

// sentAt is when a client sent a request, as a number that rises.
func sentAt(ctx context.Context) uint64 {
	n, _ := ctx.Value(sentKey{}).(uint64)
	return n
}

// A request is one on its way to a node or back.
type request struct {
	*stamp
	name name // among what the client does
}

// send numbers a request, waits while the client is paused, and returns a ctx that knows when it
// was sent.
func (s *stamp) send(ctx context.Context, verb string,
	c backend.Claim,
) (*request, context.Context) {
	s.mu.Lock()
	owner := s.owners[c.Owner] // 0 if it is new
	s.mu.Unlock()
	r := &request{s, name{s.node, -owner, verb, c.Key}}
	s.c.gate.pass(r.name)
	s.mu.Lock()
	s.requests++
	r.name.n = s.requests
	if owner == 0 {
		s.owners[c.Owner] = s.requests
	}
	s.mu.Unlock()
	r.awake()
	if s.c.w.trace.on {
		s.c.w.trace.add("client %d asks: %v", s.c.index, r.name)
	}
	return r, context.WithValue(ctx, sentKey{}, s.c.clock.Add(1))
}

// heard stops the client at the moment at which it hears something, perhaps, and returns when it
// goes on.
func (r *request) heard() {
	c := r.c
	c.gate.pass(r.name)
	if c.stops > 0 && !c.w.quiet.Load() {
		if dice := rand.New(rand.NewPCG(c.w.seed^r.hash(),
			uint64(time.Since(c.w.start)))); dice.Float64() < c.stops {
			c.pause(fraction(dice, 2*c.w.ttl))
		}
	}
	r.awake()
	if c.w.trace.on {
		c.w.trace.add("client %d hears: %v", c.index, r.name)
	}
}

// awake returns when the client is not paused. Who has waited for that goes on one after the other.
func (r *request) awake() {
	if r.c.awake() {
		r.c.gate.pass(r.name)
	}
}

func (r *request) hash() uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, r.c.index, r.name)
	return h.Sum64()
}

func (s *stamp) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	r, ctx := s.send(ctx, "acquire", c)
	defer r.heard()
	if c.MinToken > 0 {
		c.MinToken = uint64(max(1, int64(c.MinToken)+s.c.ahead.Microseconds()))
	}
	return s.Backend.TryAcquire(ctx, c)
}

func (s *stamp) Renew(ctx context.Context, c backend.Claim) error {
	r, ctx := s.send(ctx, "renew", c)
	defer r.heard()
	return s.Backend.Renew(ctx, c)
}

func (s *stamp) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	r, ctx := s.send(ctx, "release", c)
	defer r.heard()
	return s.Backend.Release(ctx, c)
}

func (s *stamp) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	r, ctx := s.send(ctx, "watch", c)
	defer r.heard()
	return s.Backend.Watch(ctx, c)
}
