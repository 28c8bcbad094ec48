package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redisclaim"
)

// Verbs are the methods of [backend.Backend] but Close, for a backend to embed.
type Verbs struct {
	backend.Base
	s *Store
}

// Verbs returns those of s.
func (s *Store) Verbs() Verbs { return Verbs{s: s} }

// Capabilities are all but stored state; in the string dialect exclusive locks, without a line.
func (v Verbs) Capabilities() backend.Capabilities { return v.s.cfg.capabilities() }

// Identity returns the server's replication id, for [backend.Identifier]. A cluster has none: the error is
// [errors.ErrUnsupported].
func (v Verbs) Identity(ctx context.Context) (string, error) {
	infos, err := v.s.info(ctx, "replication")
	if err != nil {
		return "", err
	}
	if len(infos) != 1 {
		return "", fmt.Errorf("%w: the identity of %d servers", errors.ErrUnsupported, len(infos))
	}
	return redisclaim.ReplicationID(infos[0])
}

// TryAcquire makes one attempt in one script, as [backend.Backend] says. The first one also checks the server, and is
// refused with [backend.ErrUnsafe] or [backend.ErrDenied] if it is not fit.
func (v Verbs) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if err := c.Validate(v.Capabilities()); err != nil {
		return backend.Grant{}, err
	}
	if err := v.s.fits(c); err != nil {
		return backend.Grant{}, err
	}
	if err := v.s.Check(ctx); err != nil {
		return backend.Grant{}, err
	}
	var g backend.Grant
	err := v.s.keep(ctx, v.s.Layout.Scripts().Acquire, v.s.Layout.Keys(c.Key), v.s.Layout.Acquire(c), func(reply any) (err error) {
		g, err = redisclaim.DecodeAcquire(reply, c)
		return err
	})
	return g, err
}

// Renew extends the hold in one script, as [backend.Backend] says. It works when the server is out of memory.
func (v Verbs) Renew(ctx context.Context, c backend.Claim) error {
	if err := c.Validate(v.Capabilities()); err != nil {
		return err
	}
	if err := v.s.fits(c); err != nil {
		return err
	}
	return v.s.keep(ctx, v.s.Layout.Scripts().Renew, v.s.Layout.Keys(c.Key), v.s.Layout.Renew(c), redisclaim.DecodeRenew)
}

// Release ends the claim in one script, as [backend.Backend] says. It works when the server is out of memory.
func (v Verbs) Release(ctx context.Context, c backend.Claim) error {
	if err := validate(c, v.Capabilities()); err != nil {
		return err
	}
	if err := v.s.checkKey(c.Key); err != nil {
		return err
	}
	reply, err := v.s.Run(ctx, v.s.Layout.Scripts().Release, v.s.Layout.Keys(c.Key), v.s.Layout.Release(c))
	if err != nil {
		return err
	}
	return redisclaim.DecodeRelease(reply)
}

// Inspect reads who holds key. The answer was true on the primary when it was given.
func (v Verbs) Inspect(ctx context.Context, key string) (backend.State, error) {
	if err := backend.ValidateKey(key); err != nil {
		return backend.State{}, err
	}
	if err := v.s.checkKey(key); err != nil {
		return backend.State{}, err
	}
	reply, err := v.s.Run(ctx, v.s.Layout.Scripts().Inspect, v.s.Layout.Keys(key), v.s.Layout.Inspect())
	if err != nil {
		return backend.State{}, err
	}
	return redisclaim.DecodeInspect(reply)
}

// Watch signals when c.Key is released, by anybody; for a claim in line, when the key is handed over to it. All watches of a
// backend share one connection, which is restored when it breaks; then every watcher is signalled, as it may have missed a
// message. Watch returns when the server has confirmed the subscription, when ctx is done, or after RequestTimeout.
//
// The error is [errors.ErrUnsupported] if the user may not subscribe, or may not publish: then nobody would be woken.
func (v Verbs) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	if err := backend.ValidateKey(c.Key); err != nil {
		return nil, err
	}
	if v.s.noPublish.Load() {
		return nil, fmt.Errorf("%w: wake-ups: the user may not PUBLISH (needed: %s)", errors.ErrUnsupported, redisclaim.NeedsCommands)
	}
	if c.Queue {
		return v.s.waiters.watch(ctx, v.s.Layout.ClientChannel(), &v.s.waiters.Line, v.s.Layout.Topic(c))
	}
	channel := v.s.Layout.Channel(c.Key)
	return v.s.waiters.watch(ctx, channel, &v.s.waiters.Hub, channel)
}

// validate is what a release must have: its TTL and its mode may be anything, so that nothing that was acquired is stuck.
func validate(c backend.Claim, caps backend.Capabilities) error {
	if id := c.ID(); id == "" || len(id) > backend.MaxOwner {
		field := "owner"
		if c.Reentrant {
			field = "hold"
		}
		return &backend.InvalidError{Field: field, Reason: "must have 1 to " + strconv.Itoa(backend.MaxOwner) + " bytes"}
	}
	return c.ValidateRelease(caps)
}
