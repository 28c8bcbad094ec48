package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/memstore"
)

// A conn is a client's connection to a node, without a network.
type conn struct {
	backend.Base
	n *node
}

// do executes one request. The store's clock is read with the node locked.
func (c conn) do(f func(s *memstore.Store) error) error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.n.down {
		return fmt.Errorf("%w: it is down", backend.ErrUnavailable)
	}
	return f(c.n.store)
}

func (c conn) Capabilities() backend.Capabilities { return c.n.w.caps }

func (c conn) TryAcquire(ctx context.Context, cl backend.Claim) (g backend.Grant, err error) {
	err = c.do(func(s *memstore.Store) (err error) {
		if g, err = s.Acquire(cl); err == nil && sentAt(ctx) < c.n.sent[cl.Key+cl.Owner].released {
			mark := c.n.sent[cl.Key+cl.Owner]
			c.n.w.violate("after %v an attempt took %q on a node where its own release had been at %v (settled: %v, restarts since: %d)",
				time.Since(c.n.w.start), cl.Key, mark.at, mark.settled, c.n.boots-mark.boots)
		}
		return err
	})
	return g, err
}

func (c conn) Renew(_ context.Context, cl backend.Claim) error {
	if c.n.w.v.noWriteBack {
		cl.Floor = 0
	}
	return c.do(func(s *memstore.Store) error { return s.Renew(cl) })
}

func (c conn) Release(ctx context.Context, cl backend.Claim) error {
	if c.n.w.v.noTombstone {
		cl.Settled = true
	}
	return c.do(func(s *memstore.Store) error {
		k := cl.Key + cl.Owner
		if !c.n.w.v.blind {
			c.n.sent[k] = sentMark{max(c.n.sent[k].released, sentAt(ctx)), cl.Settled, c.n.boots, time.Since(c.n.w.start)}
		}
		return s.Release(cl)
	})
}

func (c conn) Watch(ctx context.Context, cl backend.Claim) (<-chan backend.Wake, error) {
	var wake <-chan backend.Wake
	err := c.do(func(s *memstore.Store) error { wake = s.Watch(ctx, cl); return nil })
	return wake, err
}

func (c conn) Inspect(_ context.Context, key string) (state backend.State, err error) {
	err = c.do(func(s *memstore.Store) error { state = s.Inspect(key); return nil })
	return state, err
}

func (c conn) Close() error { return nil }

// A stamp notes in which order a client sends, and lets a paused client neither send nor hear. What it sends of the client's wall
// clock, which is the token that it wishes for, is by a clock that is set differently.
type stamp struct {
	backend.Backend
	c *client
}

type sentKey struct{}

func sentAt(ctx context.Context) uint64 {
	n, _ := ctx.Value(sentKey{}).(uint64)
	return n
}

func (s stamp) sent(ctx context.Context) context.Context {
	s.c.awake()
	return context.WithValue(ctx, sentKey{}, s.c.w.clock.Add(1))
}

func (s stamp) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	defer s.c.heard()
	if c.Floor > 0 {
		c.Floor = uint64(max(1, int64(c.Floor)+s.c.ahead.Microseconds()))
	}
	return s.Backend.TryAcquire(s.sent(ctx), c)
}

func (s stamp) Renew(ctx context.Context, c backend.Claim) error {
	defer s.c.heard()
	return s.Backend.Renew(s.sent(ctx), c)
}

func (s stamp) Release(ctx context.Context, c backend.Claim) error {
	defer s.c.heard()
	return s.Backend.Release(s.sent(ctx), c)
}
