package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redisclaim"
)

// check asks the server once whether it can keep locks: it must not evict them, and must let this user run the scripts. A
// yes is remembered, anything else is asked again next time. Nothing was acquired if it fails, so an answer that did not
// come is [backend.ErrUnavailable] here, unless ctx has ended.
func (b *Backend) check(ctx context.Context) error {
	if b.checked.Load() {
		return nil
	}
	err := b.checkMemory(ctx)
	if err == nil {
		err = b.checkUser(ctx)
	}
	if err != nil {
		if backend.AnswerOf(err) == backend.Unknown && endOf(ctx) == nil {
			err = fmt.Errorf("%w: first look at the server: %w", backend.ErrUnavailable, err)
		}
		return err
	}
	b.checked.Store(true)
	return nil
}

// checkMemory refuses an evicting server, every primary of a cluster included. (One that joins later is not seen.)
func (b *Backend) checkMemory(ctx context.Context) error {
	if b.cfg.AllowEviction {
		return nil
	}
	_, err := b.call(ctx, func(ctx context.Context) (any, error) {
		if cluster, ok := b.client.(*redis.ClusterClient); ok {
			return nil, cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return memoryOf(ctx, c) })
		}
		return nil, memoryOf(ctx, b.client)
	})
	switch {
	case errors.Is(err, backend.ErrUnsafe):
		return fmt.Errorf("%w, or insist with AllowEviction (allow_eviction=true)", err)
	case errors.Is(err, redisclaim.ErrNotPermitted):
		return fmt.Errorf("%w (INFO shows whether locks may be evicted; AllowEviction does without. Needed: %s)",
			err, redisclaim.NeedsCommands)
	}
	return err
}

func memoryOf(ctx context.Context, c redis.UniversalClient) error {
	info, err := c.Info(ctx, "memory").Result()
	if err != nil {
		return err
	}
	return redisclaim.CheckMemory(info)
}

// checkUser refuses a user that may not run what the scripts run. Publishing is not needed to lock.
func (b *Backend) checkUser(ctx context.Context) error {
	reply, err := b.run(ctx, redisclaim.Probe, b.layout.ProbeKey(), b.layout.Probe())
	if err != nil {
		if errors.Is(err, redisclaim.ErrNotPermitted) {
			return fmt.Errorf("%w (needed: %s)", err, redisclaim.NeedsCommands)
		}
		return err
	}
	denied, err := redisclaim.DecodeProbe(reply)
	if err != nil {
		return err
	}
	const publish = "PUBLISH"
	b.noPublish.Store(slices.Contains(denied, publish))
	denied = slices.DeleteFunc(denied, func(command string) bool { return command == publish })
	if len(denied) > 0 {
		return fmt.Errorf("%w: the user may not run %s on the keys (needed: %s)",
			backend.ErrDenied, strings.Join(slices.Compact(denied), ", "), redisclaim.NeedsCommands)
	}
	return nil
}
