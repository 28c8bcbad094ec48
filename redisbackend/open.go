package redisbackend

import (
	"context"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-go/holdfast/backend"
)

func init() {
	for _, scheme := range []string{
		"redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster",
	} {
		backend.Register(scheme, open)
	}
}

// open makes a client of its own for a URL, and asks the server whether it is fit.
func open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	t, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	b, err := New(t.client(), t.cfg)
	if err != nil {
		return nil, err
	}
	b.owned, b.secrets = true, t.secrets()
	if err := b.check(ctx); err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

// client makes the go-redis client. Whatever go-redis would do behind our back is off: retries, redials, notifications.
func (t target) client() redis.UniversalClient {
	timeout := t.cfg.RequestTimeout
	if timeout == 0 {
		timeout = DefaultRequestTimeout
	}
	o := &redis.UniversalOptions{
		Addrs: t.addrs, DB: t.db, Username: t.user, Password: t.password,
		MasterName: t.master, SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,

		Dialer:   newDialer(timeout, t.tls),
		Protocol: 2, // pushes of RESP3 would have to be looked for before each command

		MaxRetries: -1, DialerRetries: 1, // the caller repeats, and knows what it repeats
		DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
		ContextTimeoutEnabled: true,

		PoolSize: t.poolSize, PipelinePoolSize: -1,
		ReadBufferSize: 8 << 10, WriteBufferSize: 8 << 10,

		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	switch t.kind {
	case sentinel:
		c := redis.NewFailoverClient(o.Failover())
		c.AddHook(connectHook{})
		return c
	case cluster:
		co := o.Cluster()
		co.ClusterStateReloadInterval = 5 * time.Second // after a failover nothing else may tell of the new primary
		return redis.NewClusterClient(co)
	}
	return redis.NewClient(o.Simple())
}
