package redisbackend

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
)

func init() { store.Register("redis", open) }

// A target is what a URL names.
type target struct {
	store.Target
	poolSize int
}

func parseURL(u *url.URL) (t target, err error) {
	t.Target, err = store.ParseURL(u, "redis",
		store.Settings{"pool_size": store.Count(&t.poolSize)})
	return t, err
}

// open makes a client of its own for a URL, and asks the server whether it is fit.
func open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	t, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	dials := new(atomic.Uint64)
	client := t.client(dials)
	b, err := New(client, Config(t.Config))
	if err != nil {
		return nil, err
	}
	b.owned, b.store.Secrets = true, t.Secrets()
	b.store.Counts(dials)
	if err := b.store.Check(ctx); err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

// connsPerCPU is how many connections a client of ours has for each CPU, unless it is told. Few:
// requests that find none free go together, and that costs both sides half of what they cost one
// by one. (16 goroutines, one CPU: 0.54 of the rate of bare go-redis with 10 connections, 0.89
// with 2.)
const connsPerCPU = 2

// client makes the go-redis client, which counts the connections it makes. What go-redis would do
// by itself is off: retries, redials, notifications.
func (t target) client(dials *atomic.Uint64) redis.UniversalClient {
	timeout := t.Config.RequestTimeout
	if timeout == 0 {
		timeout = DefaultRequestTimeout
	}
	if t.poolSize == 0 && t.Topology != store.Cluster { // which sends one by one
		t.poolSize = connsPerCPU * runtime.GOMAXPROCS(0)
	}
	o := &redis.UniversalOptions{
		Addrs: t.Addrs, DB: t.DB, Username: t.User, Password: t.Password,
		MasterName: t.Master, SentinelUsername: t.SentinelUser,
		SentinelPassword: t.SentinelPassword,

		Dialer:   newDialer(timeout, t.TLS, dials),
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
		// After a failover nothing else may tell of the new primary.
		co.ClusterStateReloadInterval = 5 * time.Second
		co.NewClient = func(o *redis.Options) *redis.Client {
			c := redis.NewClient(o)
			c.AddHook(topologyHook{timeout / 3})
			return c
		}
		return redis.NewClusterClient(co)
	}
	return redis.NewClient(o.Simple())
}

// noConn is a connection that was not made, and says so when it is first used.
//
// go-redis counts failed dials, and from PoolSize on it fails every request from memory until a
// goroutine, which outlives Close by up to a second, has dialed once a second with success. So a
// server that is back would be taken for dead for another second. A dial that does not fail is not
// counted.
type noConn struct{ err *store.ConnectError }

func (c noConn) Read([]byte) (int, error)       { return 0, c.err }
func (c noConn) Write([]byte) (int, error)      { return 0, c.err }
func (noConn) Close() error                     { return nil }
func (noConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (noConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (noConn) SetDeadline(time.Time) error      { return nil }
func (noConn) SetReadDeadline(time.Time) error  { return nil }
func (noConn) SetWriteDeadline(time.Time) error { return nil }

// notConnected is what a dial returns when it has failed. If its caller has left, the failure is
// not put off: the connection would go to the pool, and fail the next caller.
func notConnected(ctx context.Context, err error) (net.Conn, error) {
	failure := &store.ConnectError{Err: err}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, failure
	}
	return noConn{failure}, nil
}

// newDialer returns the dialer of the clients that we make.
func newDialer(timeout time.Duration, secure *tls.Config, dials *atomic.Uint64) store.DialFunc {
	dial := store.NewDialer(timeout, secure)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return notConnected(ctx, err)
		}
		dials.Add(1)
		return conn, nil
	}
}

// A connectHook marks what fails before there is an address to dial: Sentinel's search for the
// primary is part of a dial, and its errors have no type of their own.
type connectHook struct{}

func (connectHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return notConnected(ctx, err)
		}
		return conn, nil
	}
}

func (connectHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (connectHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A topologyHook has a node say within a limit who the primaries are, if nobody waits for it:
// go-redis asks one node after the other, in any order, and the one that hangs is the reason to
// ask.
type topologyHook struct{ limit time.Duration }

func (topologyHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h topologyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		// safeguard: topology-limit
		if _, waitedFor := ctx.Deadline(); !waitedFor && cmd.Name() == "cluster" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, h.limit)
			defer cancel()
		}
		return next(ctx, cmd)
	}
}

func (topologyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
