package redisbackend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
)

// A connectError says that a connection was not made: nothing was sent on it. It does not unwrap, as go-redis unwraps what
// comes from the set-up of a connection, and the mark would be lost.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }

// noConn is a connection that was not made, and says so when it is first used.
//
// go-redis counts failed dials, and from PoolSize on it fails every request from memory until a goroutine, which outlives
// Close by up to a second, has dialed once a second with success. So a server that is back would be taken for dead for
// another second. A dial that does not fail is not counted.
type noConn struct{ err *connectError }

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
	failure := &connectError{err}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, failure
	}
	return noConn{failure}, nil
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// newDialer returns the dialer of the clients that we make. Unlike go-redis' own for TLS it heeds ctx in the handshake.
func newDialer(timeout time.Duration, secure *tls.Config) dialer {
	plain := &net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := plain.DialContext(ctx, network, addr)
		if err == nil && secure != nil {
			conn, err = shake(ctx, conn, secure, timeout, addr)
		}
		if err != nil {
			return notConnected(ctx, err)
		}
		return conn, nil
	}
}

// shake makes the TLS handshake, and closes conn if it fails.
func shake(ctx context.Context, conn net.Conn, cfg *tls.Config, timeout time.Duration, addr string) (net.Conn, error) {
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	shaken := tls.Client(conn, cfg)
	if err := shaken.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", addr, err)
	}
	return shaken, nil
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

// tlsConfig reads the files that a URL names.
func tlsConfig(ca, cert, key, serverName string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, invalidOption("ca", ca, "cannot be read: "+err.Error())
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalidOption("ca", ca, "has no PEM certificate")
		}
	}
	if (cert == "") != (key == "") {
		return nil, invalidOption("cert", cert, "and key go together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, invalidOption("cert", cert, "cannot be used: "+err.Error())
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

func invalidOption(name, value, reason string) error {
	const shown = 64
	if len(value) > shown {
		value = value[:shown] + "…"
	}
	return &backend.InvalidError{Field: name, Value: value, Reason: reason}
}
