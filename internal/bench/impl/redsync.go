package impl

import (
	"context"

	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	rueidispool "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
)

const redsyncSettings = "one pool; default options: expiry 8s, 32 tries 50-250 ms apart, no renewal"

var (
	_ = register(Impl{
		Name: "redsync+goredis", Role: Peer, Settings: redsyncSettings,
		Modules: []string{"github.com/go-redsync/redsync/v4", "github.com/redis/go-redis/v9"},
		Sent:    []string{"set", "evalsha", "eval"},
		Open: func(_ context.Context, addr string) (Client, error) {
			c := redis.NewClient(&redis.Options{Addr: addr})
			return newRedsync(goredis.NewPool(c), func() { _ = c.Close() }), nil
		},
	})
	_ = register(Impl{
		Name: "redsync+rueidis", Role: Peer, Settings: redsyncSettings,
		Modules: []string{"github.com/go-redsync/redsync/v4", "github.com/redis/rueidis"},
		Sent:    []string{"set", "evalsha", "eval"},
		Open: func(_ context.Context, addr string) (Client, error) {
			c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
			if err != nil {
				return nil, err
			}
			return newRedsync(rueidispool.NewPool(rueidiscompat.NewAdapter(c)), c.Close), nil
		},
	})
)

type redsyncClient struct {
	rs    *redsync.Redsync
	close func()
}

func newRedsync(pool pools.Pool, closeClient func()) Client {
	return &redsyncClient{redsync.New(pool), closeClient}
}

func (r *redsyncClient) Close() error {
	r.close()
	return nil
}

func (r *redsyncClient) Lock(ctx context.Context, key string) (Held, error) {
	m := r.rs.NewMutex(key)
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncHeld{m}, nil
}

type redsyncHeld struct{ m *redsync.Mutex }

func (redsyncHeld) Token() uint64 { return 0 }

func (h redsyncHeld) Unlock() error {
	_, err := h.m.Unlock()
	return err
}
