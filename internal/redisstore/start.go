package redisstore

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Start is [backend.Starter] for b, whose Verbs are of s, on lanes that heed the limit. What is more than a script to run has a goroutine, as
// everything has without lanes.
func (s *Store) Start(
	ctx context.Context, b backend.Backend, l *Lanes, limit time.Duration, v backend.Verb, c backend.Claim, done func(backend.Grant, error),
) {
	ctx = context.WithoutCancel(ctx)
	script, args, err := s.plan(v, c)
	if err == nil && !s.Gate.Enter() {
		err = backend.ErrClosed
	}
	if err != nil {
		done(backend.Grant{}, err)
		return
	}
	if l == nil || s.cfg.Replicas > 0 || !s.checked.Load() {
		go func() {
			defer s.Gate.Leave()
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			done(v.Do(ctx, b, c))
		}()
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
