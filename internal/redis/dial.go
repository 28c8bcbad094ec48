package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A DialFunc makes a connection.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// NewDialer returns a dialer that heeds ctx in the TLS handshake too, which is made if secure is
// not nil. An address that begins with a slash is a Unix socket's.
func NewDialer(timeout time.Duration, secure *tls.Config) DialFunc {
	plain := &net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasPrefix(addr, "/") {
			network = "unix"
		}
		conn, err := plain.DialContext(ctx, network, addr)
		if err == nil && secure != nil {
			conn, err = shake(ctx, conn, secure, timeout, addr)
		}
		return conn, err
	}
}

// shake makes the TLS handshake, and closes conn if it fails.
func shake(ctx context.Context, conn net.Conn, cfg *tls.Config, timeout time.Duration,
	addr string,
) (net.Conn, error) {
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
