package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
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

// Identity returns the server's replication id, for [backend.Backend]. A cluster has none: the error is
// [errors.ErrUnsupported].
func (v Verbs) Identity(ctx context.Context) (string, error) {
	infos, err := v.s.info(ctx, "replication")
	if err != nil {
		return "", err
	}
	if len(infos) != 1 {
		return "", fmt.Errorf("%w: the identity of %d servers", errors.ErrUnsupported, len(infos))
	}
	return script.ReplicationID(infos[0])
}

// TryAcquire makes one attempt in one script, as [backend.Backend] says. The first one also checks the server, and is
// refused with [backend.ErrUnsafe] or [backend.ErrDenied] if it is not fit.
func (v Verbs) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	return v.s.do(ctx, backend.Acquire, c)
}

// Renew extends the hold in one script, as [backend.Backend] says. It works when the server is out of memory.
func (v Verbs) Renew(ctx context.Context, c backend.Claim) error {
	_, err := v.s.do(ctx, backend.Renew, c)
	return err
}

// Release ends the claim in one script, as [backend.Backend] says. It works when the server is out of memory.
func (v Verbs) Release(ctx context.Context, c backend.Claim) error {
	_, err := v.s.do(ctx, backend.Release, c)
	return err
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
	return script.DecodeInspect(reply)
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
		return nil, fmt.Errorf("%w: wake-ups: the user may not PUBLISH (needed: %s)", errors.ErrUnsupported, script.NeedsCommands)
	}
	if c.Queue {
		return v.s.waiters.watch(ctx, v.s.Layout.ClientChannel(), &v.s.waiters.Line, v.s.Layout.Topic(c))
	}
	channel := v.s.Layout.Channel(c.Key)
	return v.s.waiters.watch(ctx, channel, &v.s.waiters.Hub, channel)
}
