package redisstore

import (
	"context"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redisclaim"
)

// Relay is [backend.Relayer]'s, in one script where that knows the case, and else by those of the two verbs, one after the other.
// With Config.Replicas each answer waits for replicas, and in the string dialect nobody stands in line: there is nothing to gain.
func (v Verbs) Relay(ctx context.Context, ended, next backend.Claim) (released error, g backend.Grant, err error) {
	if v.s.cfg.Replicas > 0 || !v.Capabilities().Queue {
		return backend.RelayOf(ctx, nil, ended, next) // as for a backend that is no Relayer
	}
	if args, ok := v.s.relayed(ended, next); ok {
		reply, err := v.s.Run(ctx, v.s.Layout.Scripts().Relay, v.s.Layout.Keys(next.Key), args)
		if err != nil {
			return err, g, err // whichever of the three answers it is, it is that of both
		}
		if done, g, err := redisclaim.DecodeRelay(reply, next); done {
			return nil, g, err
		}
	}
	if released = v.Release(ctx, ended); backend.AnswerOf(released) == backend.Unknown {
		return released, g, released
	}
	g, err = v.TryAcquire(ctx, next)
	return released, g, err
}

// relayed returns the arguments for the script, unless one of the two is not even to be sent, or is none that the script knows.
func (s *Store) relayed(ended, next backend.Claim) (args []string, ok bool) {
	if ended.Key != next.Key || !s.checked.Load() || s.refusal(backend.Release, ended) != nil || s.refusal(backend.Acquire, next) != nil {
		return nil, false
	}
	return s.Layout.Relay(ended, next)
}
