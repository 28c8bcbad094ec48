package etcdbackend

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// transport is TLS as a URL asks for it. It remembers why the last handshake failed: the client
// keeps that for itself, and tries again until time is up.
type transport struct {
	credentials.TransportCredentials
	// that the certificate must have; empty for the endpoint's host
	serverName string
	failed     *atomic.Pointer[error] // the last failure
}

func newTransport(cfg *tls.Config) transport {
	return transport{credentials.NewTLS(cfg), cfg.ServerName, &atomic.Pointer[error]{}}
}

// ClientHandshake implements [credentials.TransportCredentials]. gRPC's own looks for the host of
// the endpoint in the certificate, whatever the tls.Config says.
func (t transport) ClientHandshake(ctx context.Context, host string,
	raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ClientHandshake(ctx, cmp.Or(t.serverName, host), raw)
	if err != nil {
		if ctx.Err() == nil {
			t.fail(raw, err)
		}
		return nil, nil, err
	}
	return &alerted{conn, t}, info, nil
}

// Clone implements [credentials.TransportCredentials].
func (t transport) Clone() credentials.TransportCredentials {
	t.TransportCredentials = t.TransportCredentials.Clone()
	return t
}

func (t transport) fail(conn net.Conn, err error) {
	err = fmt.Errorf("TLS with %s: %w", conn.RemoteAddr(), err)
	t.failed.Store(&err)
}

// failure is why the last handshake failed; nil if none did, or there is no TLS.
func (t transport) failure() error {
	if t.failed == nil || t.failed.Load() == nil {
		return nil
	}
	return *t.failed.Load()
}

// An alerted connection may be refused by the server after the client's part of the handshake, for
// want of a client certificate.
type alerted struct {
	net.Conn
	of transport
}

// Read implements [net.Conn].
func (c *alerted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	// This is what crypto/tls calls it.
	if alert := (*net.OpError)(nil); errors.As(err, &alert) && alert.Op == "remote error" {
		c.of.fail(c.Conn, err)
	}
	return n, err
}
