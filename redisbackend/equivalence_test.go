package redisbackend_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// TestEquivalence runs random operations on one key of the reference and of Redis: the answers
// must be the same. Leases and places last longer than the test, as the two clocks are not one;
// what lapses is tested in internal/redis/script. Claims are queued as soon as the reference
// lets them. The clients of Redis are of all kinds: those that take and free plain locks without
// scripts where the server lets them, one that never does, and one that asks as for many keys
// first.
//
// covers: W6, W7, W11, W15, Q12, I9, A4, A10
func TestEquivalence(t *testing.T) {
	srv := testserver.SharedRedis(t)
	b, another := redistest.Dial(t, srv.URL()), redistest.Dial(t, srv.URL())
	defer b.Close()
	defer another.Close()
	clients := []backend.Backend{b, b, another, redistest.Scripts(t, srv, b), byMany{another}}
	rounds := 400
	if testing.Short() {
		rounds = 100
	}
	for i := range rounds {
		m := membackend.New()
		p := pair{
			t: t, mem: m, redis: clients, key: fmt.Sprint(t.Name(), ".", i),
			rand:   rand.New(rand.NewPCG(uint64(i), 7)),
			tokens: map[uint64]uint64{},
		}
		p.run(30)
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("round %d:\n%s", i, strings.Join(p.log, "\n"))
		}
	}
}

// byMany asks in one request for many keys, where a claim may, and by itself for what that left.
type byMany struct{ backend.Backend }

func (b byMany) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	grants, err := b.TryAcquireAll(ctx, []backend.Claim{c})
	if err == nil && len(grants) == 1 {
		return grants[0], nil
	}
	return b.Backend.TryAcquire(ctx, c)
}

func (b byMany) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	released, err := b.TryReleaseAll(ctx, []backend.Claim{c})
	if err == nil && released[0] {
		return backend.Released{}, nil
	}
	return b.Backend.Release(ctx, c)
}

// A pair is a key in both stores.
type pair struct {
	t      *testing.T
	mem    backend.Backend
	redis  []backend.Backend // one of which is asked
	key    string
	rand   *rand.Rand
	limit  int // of most permits
	claims []backend.Claim
	tokens map[uint64]uint64 // of the reference, and what Redis gave for the same grant
	log    []string
}

func (p *pair) run(steps int) {
	p.limit = 2 + 3*p.rand.IntN(2)
	styles := p.rand.Perm(4)[:1+p.rand.IntN(3)] // few modes on a key, so that they meet
	if p.rand.IntN(4) == 0 {
		styles = []int{0} // the short ways
	}
	for range 8 {
		p.claims = append(p.claims, p.claim(styles[p.rand.IntN(len(styles))]))
	}
	for range steps {
		c := p.claims[p.rand.IntN(len(p.claims))]
		switch n := p.rand.IntN(10); {
		case n < 5:
			p.both(c, "acquire", func(b backend.Backend) (backend.Grant, error) {
				return b.TryAcquire(p.t.Context(), c)
			})
		case n < 6:
			p.both(c, "renew", func(b backend.Backend) (backend.Grant, error) {
				return backend.Grant{}, b.Renew(p.t.Context(), c)
			})
		case n < 7:
			p.together()
		default:
			c.NoneInFlight = p.rand.IntN(4) > 0
			p.both(c, "release", func(b backend.Backend) (backend.Grant, error) {
				return backend.Grant{}, storetest.Release(p.t.Context(), b, c)
			})
		}
		p.look()
		if p.t.Failed() {
			return
		}
	}
}

// together releases some of the claims in one request, of which one may have been released before.
func (p *pair) together() {
	var some []backend.Claim
	for _, i := range p.rand.Perm(len(p.claims))[:2+p.rand.IntN(4)] {
		c := p.claims[i]
		c.NoneInFlight = p.rand.IntN(4) > 0
		some = append(some, c)
	}
	p.both(some[0], fmt.Sprint("release of ", len(some), " and"),
		func(b backend.Backend) (backend.Grant, error) {
			answers, err := b.ReleaseAll(p.t.Context(), some)
			if err != nil {
				return backend.Grant{}, err
			}
			text := ""
			for i, err := range answers {
				text += fmt.Sprintln("pid", some[i].Meta.PID, answer(backend.Grant{}, err))
			}
			return backend.Grant{}, errors.New(text)
		})
}

func (p *pair) claim(style int) backend.Claim {
	c := backend.Claim{
		Key: p.key, Owner: backend.NewOwner(), TTL: time.Hour,
		Meta: backend.Meta{PID: 1 + len(p.claims)},
	}
	switch style {
	case 0:
		c.Reserve = p.rand.IntN(3)
	case 1:
		c.Mode = backend.Shared
	case 2:
		c.Mode, c.Limit = backend.Permit, p.limit+p.rand.IntN(20)/19
		c.Weight = p.rand.IntN(c.Limit + 1)
	case 3:
		c.Owner, c.Reentrant, c.Hold = fmt.Sprint("owner", p.rand.IntN(2)), true, backend.NewOwner()
	}
	if p.mem.Capabilities().Queue && p.rand.IntN(3) > 0 {
		c.Queue, c.WaiterTTL = true, time.Hour
	}
	return c
}

// both asks both stores, and compares.
func (p *pair) both(c backend.Claim, verb string,
	ask func(backend.Backend) (backend.Grant, error),
) {
	g1, err1 := ask(p.mem)
	g2, err2 := ask(p.redis[p.rand.IntN(len(p.redis))])
	a1, a2 := answer(g1, err1), answer(g2, err2)
	p.log = append(p.log, fmt.Sprintf("%s pid %d %v weight %d of %d queue=%v reentrant=%v: %s",
		verb, c.Meta.PID, c.Mode, c.Weight, c.Limit, c.Queue, c.Reentrant, a1))
	if a1 != a2 {
		p.t.Errorf("the reference says %s, Redis says %s", a1, a2)
	}
	p.sameToken(g1.Token, g2.Token)
}

func answer(g backend.Grant, err error) string {
	var held *backend.HeldError
	switch {
	case err == nil:
		return fmt.Sprint("yes, reserved ", max(g.Reserved, 1))
	case errors.As(err, &held):
		return fmt.Sprintf("held, place %d, ask %v", held.Position, held.RetryAfter > 0)
	case errors.Is(err, backend.ErrLost):
		return "lost"
	case errors.Is(err, backend.ErrMismatch):
		return "mismatch"
	}
	return err.Error()
}

// sameToken holds two tokens of one grant to what was seen before: the same grant, and the same
// order of grants.
func (p *pair) sameToken(mem, redis uint64) {
	if known, ok := p.tokens[mem]; ok && known != redis {
		p.t.Errorf("one grant has tokens %d and %d", known, redis)
	}
	for m, r := range p.tokens {
		if (m < mem) != (r < redis) {
			p.t.Errorf("grants in another order: %d and %d, %d and %d", m, mem, r, redis)
		}
	}
	if mem != 0 {
		p.tokens[mem] = redis
	}
}

func (p *pair) look() {
	s1, err1 := p.mem.Inspect(context.Background(), p.key)
	s2, err2 := p.redis[0].Inspect(context.Background(), p.key)
	if err1 != nil || err2 != nil {
		p.t.Fatalf("Inspect: %v, %v", err1, err2)
	}
	if a, b := summary(s1), summary(s2); a != b {
		p.t.Errorf("the reference shows %s, Redis shows %s", a, b)
	}
}

// summary is what two stores must agree on. Holders have no order.
func summary(s backend.State) string {
	var holders, line []string
	for _, h := range s.Holders {
		holders = append(holders, fmt.Sprint(h.Mode, h.Meta.PID, h.Owner, max(h.Weight, 1)))
	}
	slices.Sort(holders)
	for _, w := range s.Waiters {
		line = append(line, fmt.Sprint(w.Mode, w.Meta.PID, w.Owner, max(w.Weight, 1)))
	}
	return fmt.Sprint(holders, " and in the queue ", line)
}
