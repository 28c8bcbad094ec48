package redisbackend

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	store "github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

type acknowledged struct {
	reply    any
	replicas int64
}

// RunAcknowledged executes a script and waits on its connection for replicas.
func (t transport) RunAcknowledged(
	ctx context.Context, s script.Script, keys, args []string, replicas int, limit time.Duration,
) (any, int, error) {
	r := t.b.lanes.New()
	r.Script, r.Keys, r.Args = s, keys, args
	r.Other = func(ctx context.Context) (any, error) { return t.b.acknowledge(ctx, r, replicas, limit) }
	reply, err := t.b.call(ctx, r)
	a, _ := reply.(acknowledged)
	return a.reply, int(a.replicas), err
}

// acknowledge sends both commands in one pipeline, which is one connection.
func (b *Backend) acknowledge(ctx context.Context, r *store.Request, replicas int, limit time.Duration) (any, error) {
	send := func(command, script string, limit time.Duration) (acknowledged, error) {
		p := b.client.Pipeline()
		run := b.command(r, command, script)
		wait := attempt{redis.NewCmd(ctx, "wait", replicas, max(limit.Milliseconds(), 1))}
		_, _ = p.Process(ctx, run), p.Process(ctx, wait) // sends nothing yet
		_, _ = p.Exec(ctx)
		reply, err := run.Result()
		if err != nil {
			return acknowledged{}, err
		}
		n, err := wait.Int64()
		return acknowledged{reply, n}, err
	}
	a, err := send("evalsha", r.Script.SHA1, limit)
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // and may have waited all the same: half of what is left is for the reply
		a, err = send("eval", r.Script.Source, min(limit, time.Until(r.Ctx.Limit)/2))
	}
	return a, err
}
