package redisbackend

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	store "github.com/holdfast-go/holdfast/internal/redis"
)

// noConn is a connection that was not made, and says so when it is first used.
//
// go-redis counts failed dials, and from PoolSize on it fails every request from memory until a goroutine, which outlives
// Close by up to a second, has dialed once a second with success. So a server that is back would be taken for dead for
// another second. A dial that does not fail is not counted.
type noConn struct{ err *store.ConnectError }

func (c noConn) Read([]byte) (int, error)       { return 0, c.err }
func (c noConn) Write([]byte) (int, error)      { return 0, c.err }
func (noConn) Close() error                     { return nil }
func (noConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (noConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (noConn) SetDeadline(time.Time) error      { return nil }
func (noConn) SetReadDeadline(time.Time) error  { return nil }
func (noConn) SetWriteDeadline(time.Time) error { return nil }

// notConnected is what a dial returns when it has failed. If its caller has left, the failure is not put off: the
// connection would go to the pool, and fail the next caller.
func notConnected(ctx context.Context, err error) (net.Conn, error) {
	failure := &store.ConnectError{Err: err}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, failure
	}
	return noConn{failure}, nil
}

// newDialer returns the dialer of the clients that we make.
func newDialer(timeout time.Duration, secure *tls.Config) store.DialFunc {
	dial := store.NewDialer(timeout, secure)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return notConnected(ctx, err)
		}
		return conn, nil
	}
}

// A connectHook marks what fails before there is an address to dial: Sentinel's search for the primary is part of a dial,
// and its errors have no type of their own.
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
