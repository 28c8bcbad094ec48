package redisbackend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
)

// A connectError says that a connection was not made: nothing was sent on it.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// newDialer returns the dialer of the clients that we make. Unlike go-redis' own for TLS it heeds ctx in the handshake.
func newDialer(timeout time.Duration, secure *tls.Config) dialer {
	plain := &net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := plain.DialContext(ctx, network, addr)
		if err != nil {
			return nil, &connectError{err}
		}
		if secure == nil {
			return conn, nil
		}
		cfg := secure
		if cfg.ServerName == "" {
			cfg = secure.Clone()
			cfg.ServerName, _, _ = net.SplitHostPort(addr)
		}
		shaken := tls.Client(conn, cfg)
		if err := shaken.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, &connectError{fmt.Errorf("TLS handshake with %s: %w", addr, err)}
		}
		return shaken, nil
	}
}

// A connectHook marks what fails before a connection is made. Sentinel's search for the primary is part of a dial, and its
// errors have no type of their own.
type connectHook struct{}

func (connectHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, &connectError{err}
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
