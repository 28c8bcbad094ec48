package impl

import (
	"context"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	rueidispool "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

const redsyncSettings = "a pool a server; default options: expiry 8s, 32 tries 50-250 ms " +
	"apart, no renewal"

var scripts = []string{"set", "evalsha", "eval"}

func init() {
	register(
		newBsm("bsm-redislock"), newBsm("bsm-redislock"+Ten), newBsm("bsm-redislock"+Fifty),
		newRedsync("redsync", Goredis), newRedsync("redsync", Rueidis),
		newRedsync("redsync-5", Rueidis),
		Impl{
			Name: "rueidislock", Role: Peer, Client: Rueidis, Sent: scripts[1:],
			Settings: "KeyMajority 1 (one server), KeyValidity 5s, NoLoopTracking",
			Open:     openRueidislock,
		},
		Impl{
			Name: "etcd-concurrency", Role: Peer, Client: Etcd,
			Settings: "NewSession(WithTTL(8)), a new Mutex for each lock", Open: openConcurrency,
		},
	)
}

func newBsm(name string) Impl {
	return Impl{
		Name: name, Role: Peer, Client: Goredis, Module: "github.com/bsm/redislock",
		Sent: scripts[1:],
		Settings: "TTL 8s, LinearBackoff(100ms) as in its README, without the limit of 3 " +
			"tries; no renewal",
		Open: func(_ context.Context, addr string) (Client, error) {
			l := redislock.New(redis.NewClient(&redis.Options{Addr: addr}))
			retry := &redislock.Options{RetryStrategy: redislock.LinearBackoff(
				100 * time.Millisecond)}
			return lockFunc(func(ctx context.Context, key string) (Held, error) {
				keys := several(name, key)
				if keys == nil {
					keys = []string{key}
				}
				h, err := l.ObtainMulti(ctx, keys, TTL, retry)
				if err != nil {
					return nil, err
				}
				return &held{0, func() error { return h.Release(context.Background()) }}, nil
			}), nil
		},
	}
}

func newRedsync(name, client string) Impl {
	return Impl{
		Name: name + "+" + client, Role: Peer, Client: client,
		Module:   "github.com/go-redsync/redsync/v4",
		Settings: redsyncSettings, Sent: scripts,
		Open: func(_ context.Context, addrs string) (Client, error) {
			var nodes []pools.Pool
			for addr := range strings.SplitSeq(addrs, ",") {
				if client == Goredis {
					nodes = append(nodes, goredis.NewPool(
						redis.NewClient(&redis.Options{Addr: addr})))
					continue
				}
				c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
				if err != nil {
					return nil, err
				}
				nodes = append(nodes, rueidispool.NewPool(rueidiscompat.NewAdapter(c)))
			}
			rs := redsync.New(nodes...)
			return lockFunc(func(ctx context.Context, key string) (Held, error) {
				m := rs.NewMutex(key)
				if err := m.LockContext(ctx); err != nil {
					return nil, err
				}
				return &held{0, func() error {
					_, err := m.Unlock()
					return err
				}}, nil
			}), nil
		},
	}
}

func openRueidislock(_ context.Context, addr string) (Client, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyMajority: 1,
		NoLoopTracking: true,
	})
	return lockFunc(func(ctx context.Context, key string) (Held, error) {
		_, cancel, err := l.WithContext(ctx, key)
		if err != nil {
			return nil, err
		}
		return &held{0, func() error {
			cancel() // sends the release and waits for it
			return nil
		}}, nil
	}), err
}

func openConcurrency(_ context.Context, addr string) (Client, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(c, concurrency.WithTTL(int(TTL/time.Second)))
	return lockFunc(func(ctx context.Context, key string) (Held, error) {
		m := concurrency.NewMutex(s, key)
		if err := m.Lock(ctx); err != nil {
			return nil, err
		}
		return &held{0, func() error { return m.Unlock(context.Background()) }}, nil
	}), err
}
