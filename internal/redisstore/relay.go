package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redisclaim"
)

// Relay is [backend.Relayer]'s, in one script where that knows the case, and else by the two of the verbs, one after the other. With Config.Replicas each answer waits
// for replicas, so there is nothing to gain.
func (v Verbs) Relay(ctx context.Context, ended, next backend.Claim) (released error, g backend.Grant, err error) {
	if v.s.cfg.Replicas > 0 || !v.Capabilities().Queue {
		err = fmt.Errorf("%w: releasing and acquiring in one request", errors.ErrUnsupported)
		return err, g, err
	}
	if args, ok := v.s.Layout.Relay(ended, next); ok && v.relayable(ended, next) {
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

// relayable reports whether both claims are such that nothing would be refused before it is sent.
func (v Verbs) relayable(ended, next backend.Claim) bool {
	return v.s.checked.Load() && ended.Key == next.Key && validate(ended, v.Capabilities()) == nil &&
		next.Validate(v.Capabilities()) == nil && v.s.fits(next) == nil
}
