package redisstore

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redisclaim"
)

// Start is [backend.Starter] for b, whose Verbs are of s, on lanes that heed the limit. What is more than a script to run has a goroutine, as
// everything has without lanes.
func (s *Store) Start(
	ctx context.Context, b backend.Backend, l *Lanes, limit time.Duration, v backend.Verb, c backend.Claim, done func(backend.Grant, error),
) {
	ctx = context.WithoutCancel(ctx)
	if l == nil || s.cfg.Replicas > 0 || !s.checked.Load() {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			done(v.Do(ctx, b, c))
		}()
		return
	}
	script, args, err := s.plan(v, c)
	if err == nil && !s.Gate.Enter() {
		err = backend.ErrClosed
	}
	if err != nil {
		done(backend.Grant{}, err)
		return
	}
	r := l.New()
	r.Ctx, _ = Bound(ctx, min(limit, s.cfg.RequestTimeout))
	r.Script, r.Keys, r.Args = script, s.Layout.Keys(c.Key), args
	until := r.Ctx
	l.Start(r, func(reply any, err error) {
		defer s.Gate.Leave()
		if err != nil {
			done(backend.Grant{}, s.Failure(until, err))
			return
		}
		done(outcome(v, reply, c))
	})
}

// plan is the script of a verb with its arguments.
func (s *Store) plan(v backend.Verb, c backend.Claim) (script redisclaim.Script, args []string, err error) {
	caps := s.cfg.capabilities()
	if v == backend.Release {
		return s.Layout.Scripts().Release, s.Layout.Release(c), validate(c, caps)
	}
	if err := c.Validate(caps); err != nil {
		return script, nil, err
	}
	if err := s.fits(c); err != nil {
		return script, nil, err
	}
	if v == backend.Renew {
		return s.Layout.Scripts().Renew, s.Layout.Renew(c), nil
	}
	return s.Layout.Scripts().Acquire, s.Layout.Acquire(c), nil
}

// outcome is what the script of a verb has answered.
func outcome(v backend.Verb, reply any, c backend.Claim) (backend.Grant, error) {
	switch v {
	case backend.Acquire:
		return redisclaim.DecodeAcquire(reply, c)
	case backend.Renew:
		return backend.Grant{}, redisclaim.DecodeRenew(reply)
	default:
		return backend.Grant{}, redisclaim.DecodeRelease(reply)
	}
}
