package redisstore

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redisclaim"
)

// keep runs a script that takes or extends a hold, and decodes its reply. With Config.Replicas a yes needs so many replicas
// that have it; with fewer it is unknown whether the hold would survive, so the answer is unknown too, and whoever asked
// repeats or releases the claim.
//
// A yes does not promise more than that those replicas had it: a failover may still promote another one. See the Redis
// documentation of WAIT.
func (s *Store) keep(ctx context.Context, script redisclaim.Script, keys, args []string, decode func(any) error) error {
	if s.cfg.Replicas == 0 {
		reply, err := s.Run(ctx, script, keys, args)
		if err != nil {
			return err
		}
		return decode(reply)
	}
	if !s.Gate.Enter() {
		return backend.ErrClosed
	}
	defer s.Gate.Leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	reply, n, err := s.t.RunAcknowledged(ctx, script, keys, args, s.cfg.Replicas, s.cfg.RequestTimeout/2)
	if err != nil {
		return s.Failure(ctx, err)
	}
	if err := decode(reply); err != nil {
		return err
	}
	if n < s.cfg.Replicas {
		return fmt.Errorf("redis: %d of %d replicas have the lock (replicas=%d)", n, s.cfg.Replicas, s.cfg.Replicas)
	}
	return nil
}
