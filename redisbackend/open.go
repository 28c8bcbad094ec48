package redisbackend

import (
	"context"
	"net/url"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
)

func init() {
	for _, scheme := range store.Schemes("redis") {
		backend.Register(scheme, open)
	}
}

// A target is what a URL names.
type target struct {
	store.Target
	poolSize int
}

func parseURL(u *url.URL) (t target, err error) {
	t.Target, err = store.ParseURL(u, "redis", store.Settings{"pool_size": store.Count(&t.poolSize)})
	return t, err
}

// open makes a client of its own for a URL, and asks the server whether it is fit.
func open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	t, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	client := t.client()
	b, err := New(client, Config(t.Config))
	if err != nil {
		return nil, err
	}
	b.owned, b.store.Secrets = true, t.Secrets()
	if c, ok := client.(*redis.Client); ok {
		b.lanes = store.NewLanes(c.Options().PoolSize, &b.store.Gate, b.perform)
	}
	if err := b.store.Check(ctx); err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

// lanesPerCPU is how many connections a client of ours has for each CPU, unless it is told. Few: requests that find none free
// go together, and that costs both sides half of what they cost one by one. (16 goroutines, one CPU: 0.54 of the rate of bare
// go-redis with 10 connections, 0.89 with 2.)
const lanesPerCPU = 2

// client makes the go-redis client. Whatever go-redis would do behind our back is off: retries, redials, notifications.
func (t target) client() redis.UniversalClient {
	timeout := t.Config.RequestTimeout
	if timeout == 0 {
		timeout = DefaultRequestTimeout
	}
	if t.poolSize == 0 && t.Topology != store.Cluster { // whose client has no lanes
		t.poolSize = lanesPerCPU * runtime.GOMAXPROCS(0)
	}
	o := &redis.UniversalOptions{
		Addrs: t.Addrs, DB: t.DB, Username: t.User, Password: t.Password,
		MasterName: t.Master, SentinelUsername: t.SentinelUser, SentinelPassword: t.SentinelPassword,

		Dialer:   newDialer(timeout, t.TLS),
		Protocol: 2, // pushes of RESP3 would have to be looked for before each command

		MaxRetries: -1, DialerRetries: 1, // the caller repeats, and knows what it repeats
		DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
		ContextTimeoutEnabled: true,

		PoolSize: t.poolSize, PipelinePoolSize: -1,
		ReadBufferSize: 8 << 10, WriteBufferSize: 8 << 10,

		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	switch t.Topology {
	case store.Sentinel:
		c := redis.NewFailoverClient(o.Failover())
		c.AddHook(connectHook{})
		return c
	case store.Cluster:
		co := o.Cluster()
		co.ClusterStateReloadInterval = 5 * time.Second // after a failover nothing else may tell of the new primary
		return redis.NewClusterClient(co)
	}
	return redis.NewClient(o.Simple())
}
