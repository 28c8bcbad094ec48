package redis

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// acknowledged makes a request that takes or extends a hold. A yes needs Config.Replicas that have it; with fewer it is unknown
// whether the hold would survive, so the answer is unknown too, and whoever asked repeats or releases the claim.
//
// A yes does not promise more than that those replicas had it: a failover may still promote another one. See the Redis
// documentation of WAIT.
func (s *Store) acknowledged(
	ctx context.Context, v backend.Verb, c backend.Claim, script script.Script, args []string,
) (backend.Grant, error) {
	if !s.Gate.Enter() {
		return backend.Grant{}, backend.ErrClosed
	}
	defer s.Gate.Leave()
	if err := ctx.Err(); err != nil {
		return backend.Grant{}, err
	}
	reply, n, err := s.t.RunAcknowledged(ctx, script, s.Layout.Keys(c.Key), args, s.cfg.Replicas, s.cfg.RequestTimeout/2)
	if err != nil {
		return backend.Grant{}, s.Failure(ctx, err)
	}
	g, err := outcome(v, reply, c)
	if err == nil && n < s.cfg.Replicas {
		return backend.Grant{}, fmt.Errorf("redis: %d of %d replicas have the lock (replicas=%d)", n, s.cfg.Replicas, s.cfg.Replicas)
	}
	return g, err
}
