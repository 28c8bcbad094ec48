package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/simstore"
)

// A conn is a client's connection to a node, without a network.
type conn struct {
	backend.Base
	n      *node
	client int
}

// do executes one request. The store's clock is read with the node locked.
func (c conn) do(ctx context.Context, verb, key string,
	f func(s *simstore.Store) error,
) (err error) {
	c.n.gate.pass(name{c.client, int(sentAt(ctx)), verb, key})
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.n.w.trace.on {
		defer func() {
			c.n.w.trace.add("node %d: %s %s by %d: %v", c.n.index, verb, key, c.client, plain(err))
		}()
	}
	if c.n.down {
		return fmt.Errorf("%w: it is down", backend.ErrUnavailable)
	}
	return f(c.n.store)
}

func (c conn) Capabilities() backend.Capabilities { return c.n.w.caps }

func (c conn) TryAcquire(ctx context.Context, cl backend.Claim) (g backend.Grant, err error) {
	err = c.do(ctx, "acquire", cl.Key, func(s *simstore.Store) (err error) {
		if c.n.counts {
			g, err = c.n.counted.Acquire(cl)
		} else {
			g, err = s.Acquire(cl)
		}
		if c.n.w.trace.on {
			c.n.w.trace.add("node %d: token %d", c.n.index, g.Token)
		}
		if err == nil && sentAt(ctx) < c.n.sent[cl.Key+cl.Owner].released {
			mark := c.n.sent[cl.Key+cl.Owner]
			c.n.w.violate("after %v an attempt took %q on a node where its own release had been "+
				"at %v (noneInFlight: %v, restarts since: %d)",
				time.Since(c.n.w.start), cl.Key, mark.at, mark.noneInFlight, c.n.boots-mark.boots)
		}
		return err
	})
	return g, err
}

func (c conn) Renew(ctx context.Context, cl backend.Claim) error {
	return c.do(ctx, "renew", cl.Key, func(s *simstore.Store) error {
		switch {
		case c.n.counts:
			return c.n.counted.Renew(cl)
		case c.n.w.v.noWriteBack:
			cl.MinToken = 0
		}
		return s.Renew(cl)
	})
}

func (c conn) Release(ctx context.Context, cl backend.Claim) (backend.Released, error) {
	if c.n.w.v.noTombstone {
		cl.NoneInFlight = true
	}
	return backend.Released{}, c.do(ctx, "release", cl.Key, func(s *simstore.Store) error {
		k := cl.Key + cl.Owner
		if !c.n.w.v.blind {
			c.n.sent[k] = sentMark{
				max(c.n.sent[k].released, sentAt(ctx)), cl.NoneInFlight,
				c.n.boots, time.Since(c.n.w.start),
			}
		}
		_, err := s.Release(cl)
		return err
	})
}

func (c conn) Watch(ctx context.Context, cl backend.Claim) (<-chan backend.Wake, error) {
	var wake <-chan backend.Wake
	err := c.do(ctx, "watch", cl.Key, func(s *simstore.Store) error {
		wake = s.Watch(ctx, cl)
		return nil
	})
	return wake, err
}

func (c conn) Inspect(ctx context.Context, key string) (state backend.State, err error) {
	err = c.do(ctx, "inspect", key, func(s *simstore.Store) error {
		state = s.Inspect(key)
		return nil
	})
	return state, err
}

func (c conn) Close() error { return nil }
