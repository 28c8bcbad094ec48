package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// What a user must be allowed to do. The probe tries every one of them; the packages'
// documentation has the same lists.
const (
	CommandsOnKeys     = "EVALSHA EVAL TIME GET SET DEL HGET HMGET HGETALL HSET HDEL PEXPIRE PTTL"
	CommandsOnChannels = "PUBLISH SUBSCRIBE UNSUBSCRIBE"

	needs = CommandsOnKeys + " on the keys, INFO, and for wake-ups " + CommandsOnChannels +
		" on the channels"
)

// Check asks the server once whether it can keep locks: it must not evict them, and must let this
// user run the scripts. A yes is remembered, anything else is asked again next time. Nothing was
// acquired if it fails, so an answer that did not come is [backend.ErrUnavailable] here, unless
// ctx has ended.
func (s *Store) Check(ctx context.Context) error {
	if s.checked.Load() {
		return nil
	}
	err := s.checkMemory(ctx)
	if err == nil {
		err = s.checkUser(ctx)
	}
	if err == nil {
		err = s.checkLibrary(ctx)
	}
	if err == nil {
		err = s.checkMark(ctx)
	}
	if err == nil {
		err = s.detect(ctx)
	}
	if err != nil {
		if backend.AnswerOf(err) == backend.Unknown && endOf(ctx) == nil {
			err = fmt.Errorf("%w: first look at the server: %w", backend.ErrUnavailable, err)
		}
		return err
	}
	s.checked.Store(true)
	return nil
}

// checkMemory refuses an evicting server, every primary of a cluster included. (One that joins
// later is not seen.)
func (s *Store) checkMemory(ctx context.Context) error {
	if s.cfg.AllowEviction {
		return nil
	}
	infos, err := s.info(ctx, "memory")
	for _, info := range infos { // safeguard: each-primary
		if err == nil {
			err = script.CheckMemory(info)
		}
	}
	switch {
	case errors.Is(err, backend.ErrUnsafe):
		return fmt.Errorf("%w, or insist with AllowEviction (allow_eviction=true)", err)
	case errors.Is(err, script.ErrNotPermitted):
		return fmt.Errorf("%w (INFO shows whether locks may be evicted; AllowEviction does "+
			"without. Needed: %s)",
			err, needs)
	}
	return err
}

// checkLibrary refuses a user that may not do what the client library sends besides our scripts.
func (s *Store) checkLibrary(ctx context.Context) error {
	if err := s.Begin(ctx); err != nil {
		return err
	}
	defer s.End()
	return s.Failure(ctx, s.t.Check(ctx))
}

// checkMark refuses a server whose other clients have a guard that this one has not, or another
// one: it would grant while the others wait for what the server has forgotten. One that is added
// to clients without it is not noticed by those that are connected already.
func (s *Store) checkMark(ctx context.Context) error {
	if s.cfg.Dialect != "" {
		return nil // has no guard, and keys of its own
	}
	reply, _, err := s.run(ctx,
		script.Request{Script: script.Mark, Keys: []string{s.Layout.MarkKey()}}, 0)
	if err != nil {
		return err
	}
	return s.Layout.CheckMark(reply)
}

// checkUser refuses a user that may not run what the scripts run. Publishing is not needed to
// lock.
func (s *Store) checkUser(ctx context.Context) error {
	reply, _, err := s.run(ctx, s.Layout.Probe(), 0)
	if err != nil {
		if errors.Is(err, script.ErrNotPermitted) {
			return fmt.Errorf("%w (needed: %s)", err, needs)
		}
		return err
	}
	denied, err := script.DecodeProbe(reply)
	if err != nil {
		return err
	}
	const publish = "PUBLISH"
	s.noPublish.Store(slices.Contains(denied, publish))
	denied = slices.DeleteFunc(denied, func(command string) bool { return command == publish })
	if len(denied) > 0 {
		return fmt.Errorf("%w: the user may not run %s on the keys (needed: %s)",
			backend.ErrDenied, strings.Join(slices.Compact(denied), ", "), needs)
	}
	return nil
}
