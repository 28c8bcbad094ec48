package impl

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	rueidispool "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	_ "github.com/holdfast-go/holdfast/redlock" // redlock://
)

const redsyncQuorum = "one pool a node; default options: expiry 8s, 32 tries 50-250 ms apart, all nodes waited for, no renewal"

// quorums are implementations on several servers. Their Open takes the addresses, by commas.
var quorums = []Impl{
	{
		Name: "raw-redlock", Role: Limit, Modules: []string{"github.com/redis/rueidis"}, Open: openRawRedlock,
		Settings: "SET NX PX 8000, compare-and-delete by EVALSHA; a line for each node, sent in batches; on at the majority",
		Sent:     []string{"set", "evalsha"},
	},
	newRedlock("holdfast-redlock+goredis", "redis://", "github.com/redis/go-redis/v9"),
	newRedlock("holdfast-redlock+rueidis", "rueidis://", "github.com/redis/rueidis"),
	{
		Name: "redsync-5+goredis", Role: Peer, Settings: redsyncQuorum, Extra: true, Sent: []string{"set", "evalsha", "eval"},
		Modules: []string{"github.com/go-redsync/redsync/v4", "github.com/redis/go-redis/v9"},
		Open: func(_ context.Context, addrs string) (Client, error) {
			return openRedsyncQuorum(addrs, func(addr string) (pools.Pool, func(), error) {
				c := redis.NewClient(&redis.Options{Addr: addr})
				return goredis.NewPool(c), func() { _ = c.Close() }, nil
			})
		},
	},
	{
		Name: "redsync-5+rueidis", Role: Peer, Settings: redsyncQuorum, Sent: []string{"set", "evalsha", "eval"},
		Modules: []string{"github.com/go-redsync/redsync/v4", "github.com/redis/rueidis"},
		Open: func(_ context.Context, addrs string) (Client, error) {
			return openRedsyncQuorum(addrs, func(addr string) (pools.Pool, func(), error) {
				c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
				if err != nil {
					return nil, nil, err
				}
				return rueidispool.NewPool(rueidiscompat.NewAdapter(c)), c.Close, nil
			})
		},
	},
}

// Quorums returns the implementations that lock on a majority of several servers: the limit, ours, and peers.
func Quorums() []Impl { return quorums }

func newRedlock(name, scheme string, modules ...string) Impl {
	return Impl{
		Name: name, Role: Ours, Modules: modules, Fenced: true, Settings: "redlock:// over " + scheme + ", locker.Config{TTL: 8s}, everything else at its default",
		Sent: []string{"evalsha", "eval"},
		Open: func(ctx context.Context, addrs string) (Client, error) {
			nodes := url.Values{}
			for addr := range strings.SplitSeq(addrs, ",") {
				nodes.Add("node", scheme+addr)
			}
			b, err := backend.Open(ctx, "redlock://?"+nodes.Encode())
			if err != nil {
				return nil, err
			}
			return On(b, locker.Config{TTL: TTL})
		},
	}
}

func openRedsyncQuorum(addrs string, open func(addr string) (pools.Pool, func(), error)) (Client, error) {
	var all []pools.Pool
	var closers []func()
	closeAll := func() {
		for _, c := range closers {
			c()
		}
	}
	for addr := range strings.SplitSeq(addrs, ",") {
		pool, closer, err := open(addr)
		if err != nil {
			closeAll()
			return nil, err
		}
		all, closers = append(all, pool), append(closers, closer)
	}
	return &redsyncClient{redsync.New(all...), closeAll}, nil
}

// Holds returns how many of keys are held on the server at addr, whoever locked them. A key that is of use without being
// held, as holdfast's is for the next token, does not count.
func (i Impl) Holds(ctx context.Context, addr string, keys []string) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if i.Role != Ours {
		c := redis.NewClient(&redis.Options{Addr: addr})
		defer c.Close()
		held, err := c.Exists(ctx, keys...).Result()
		return int(held), err
	}
	b, err := backend.Open(ctx, "redis://"+addr)
	if err != nil {
		return 0, err
	}
	defer b.Close()
	for _, key := range keys {
		state, err := b.Inspect(ctx, key)
		if err != nil {
			return 0, err
		}
		n += len(state.Holders)
	}
	return n, nil
}
