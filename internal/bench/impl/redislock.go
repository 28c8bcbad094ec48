package impl

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

var _ = register(Impl{
	Name: "bsm-redislock", Role: Peer,
	Settings: "TTL 8s, LinearBackoff(100ms) as in its README, without the limit of 3 tries, so that it waits; no renewal",
	Modules:  []string{"github.com/bsm/redislock", "github.com/redis/go-redis/v9"},
	Sent:     []string{"evalsha", "eval"},
	Open: func(_ context.Context, addr string) (Client, error) {
		c := redis.NewClient(&redis.Options{Addr: addr})
		return &bsm{c, redislock.New(c)}, nil
	},
})

type bsm struct {
	c *redis.Client
	l *redislock.Client
}

func (b *bsm) Close() error { return b.c.Close() }

func (b *bsm) Lock(ctx context.Context, key string) (Held, error) {
	l, err := b.l.Obtain(ctx, key, TTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
	if err != nil {
		return nil, err
	}
	return bsmHeld{l}, nil
}

type bsmHeld struct{ l *redislock.Lock }

func (bsmHeld) Token() uint64 { return 0 }
func (h bsmHeld) Unlock() error {
	return h.l.Release(context.Background())
}
