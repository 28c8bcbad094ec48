package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/go-redis/v9/push"

	store "github.com/holdfast-go/holdfast/internal/redis"
)

var (
	errTrackingSilent = errors.New(
		"redis: the connection that tells of changes does not answer a ping")
	errPrimaryMoved = errors.New("redis: the key has another primary")
)

// Track has a client of its own, as the connections of the program's are not ours to change, with
// one connection: that of a PubSub, which reads what the server pushes. It needs no subscription.
func (t transport) Track(ctx context.Context, key string, changed func()) error {
	setUp, cancel := context.WithTimeout(ctx, t.cfg.RequestTimeout)
	defer cancel()
	addr, o, err := t.primary(setUp, key)
	if err != nil {
		return err
	}
	tracking(o, key, changed)
	c := redis.NewClient(o)
	defer func() { _ = c.Close() }()
	ps := c.Subscribe(ctx)
	end := sync.OnceFunc(func() { _ = ps.Close() }) // which a read waits for
	defer context.AfterFunc(ctx, end)()
	defer end()
	if err := ps.Ping(setUp); err != nil { // makes the connection
		return err
	}
	changed()

	var heard atomic.Bool
	lost := make(chan error, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			// What is pushed goes to the processor.
			if _, err := (messages{ps}).Receive(ctx); err != nil {
				lost <- err
				return
			}
			heard.Store(true)
		}
	})
	defer reading.Wait()
	defer end()
	tick := time.NewTicker(t.cfg.RequestTimeout)
	defer tick.Stop()
	for {
		select {
		case err := <-lost:
			return err
		case <-tick.C:
		}
		if !heard.Swap(false) { // the ping before has no answer
			return errTrackingSilent
		}
		if now, _, err := t.primary(ctx, key); err == nil && now != addr {
			return errPrimaryMoved
		}
		bounded, cancel := context.WithTimeout(ctx, t.cfg.RequestTimeout)
		err := ps.Ping(bounded)
		cancel()
		if err != nil {
			return err
		}
	}
}

// primary returns where the primary of a key is, as far as the client knows, and how to connect to
// it. A client of Sentinel asks where that is when it connects.
func (t transport) primary(ctx context.Context,
	key string,
) (addr string, o *redis.Options, err error) {
	var c *redis.Client
	switch client := t.client.(type) {
	case *redis.Client:
		c = client
	case *redis.ClusterClient:
		if c, err = client.MasterForKey(ctx, key); err != nil {
			return "", nil, err
		}
	default:
		return "", nil, fmt.Errorf("%w: a connection of its own for a client that is a %T",
			errors.ErrUnsupported, client)
	}
	options := *c.Options()
	return options.Addr, &options, nil
}

// tracking sets up connections on which the server tells of changes of one key.
func tracking(o *redis.Options, key string, changed func()) {
	processor := redis.NewPushNotificationProcessor()
	_ = processor.RegisterHandler("invalidate", invalidations{key, changed}, false)
	theirs := o.OnConnect
	o.Protocol, o.PushNotificationProcessor = 3, processor
	o.MinIdleConns, o.PoolSize, o.PipelinePoolSize, o.DialerRetries = 0, 1, -1, 1
	o.ClientSideCacheConfig, o.ClientSideCache = nil, nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		if theirs != nil {
			if err := theirs(ctx, cn); err != nil {
				return err
			}
		}
		// Without HELLO 3 the client would go on with RESP2, and hear nothing.
		if err := cn.Do(ctx, "hello", "3").Err(); err != nil {
			return err
		}
		return cn.Do(ctx, "client", "tracking", "on", "bcast", "prefix", key).Err()
	}
}

// invalidations are what the server pushes when keys that begin with key were written.
type invalidations struct {
	key     string
	changed func()
}

// HandlePushNotification is called in the connection's reader. No keys stands for all of them, as
// when the database was flushed.
func (i invalidations) HandlePushNotification(_ context.Context, _ push.NotificationHandlerContext,
	message []any,
) error {
	if keys, some := message[len(message)-1].([]any); !some || slices.Contains(keys, any(i.key)) {
		i.changed()
	}
	return nil
}

var _ store.Transport = transport{}
