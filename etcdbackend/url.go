package etcdbackend

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/backend"
)

func init() {
	backend.Register("etcd", open)
	backend.Register("etcds", open)
	backend.Register("etcd+unix", open)
}

// DefaultDialTimeout bounds the log-in of a client that is opened by URL.
const DefaultDialTimeout = 5 * time.Second

// keepAliveTime and keepAliveTimeout have a connection whose peer does not answer given up. gRPC
// takes no shorter time.
const (
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// A target is what a URL names.
type target struct {
	endpoints      []string
	user, password string
	dialTimeout    time.Duration
	tls            *tls.Config
	transport      transport // of tls
	cfg            Config
}

// open makes a client of its own for a URL, and asks the cluster once. The client logs nothing:
// what goes wrong is in the errors.
func open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	t, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		t.dialTimeout = max(time.Millisecond, min(t.dialTimeout, time.Until(deadline)))
	}
	options := []grpc.DialOption{grpc.WithChainUnaryInterceptor(sentOnce)}
	if t.tls != nil {
		t.transport = newTransport(t.tls)
		// Of options of a kind the last one counts.
		options = append(options, grpc.WithTransportCredentials(t.transport))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: t.endpoints, Username: t.user, Password: t.password, TLS: t.tls,
		DialTimeout: t.dialTimeout, Logger: zap.NewNop(), DialOptions: options,
		DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout,
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded): // of the log-in
		return nil, t.explain(ctx, cmp.Or(ctx.Err(), errLogin))
	case err != nil: // has no password, as the client's errors have none
		return nil, (&Backend{}).failure(err)
	}
	b, err := New(client, t.cfg)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	b.owned = true
	err = b.verb(ctx, "open", func(ctx context.Context) error {
		_, err := b.get(ctx, b.scheme.paths("open").queue, clientv3.WithCountOnly())
		return err
	})
	if err != nil {
		_ = b.Close()
		return nil, t.explain(ctx, err)
	}
	return b, nil
}

// sentOnce keeps etcd's client from making a transaction again by itself, unknown to us: it does
// when it hears that the time is over, or the request cancelled, and ctx knows nothing of that. A
// proxy with less patience says so, or a server whose clock is ahead, and neither says what became
// of the request. So it is waited for as if there were no answer, and what is sent again is sent by
// resending, which tells. For resending it also notes what was answered, other than to the log-ins
// in between.
func sentOnce(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	err := next(ctx, method, req, reply, cc, opts...)
	_, login := req.(*etcdserverpb.AuthenticateRequest)
	if last, ok := ctx.Value(heard{}).(*heard); ok && !login {
		if last.answer = err; forNow(err) {
			last.refusal = err
		}
	}
	_, txn := req.(*etcdserverpb.TxnRequest)
	// safeguard: etcd-sent-once
	if txn && (isCode(err, codes.DeadlineExceeded) || isCode(err, codes.Canceled)) {
		<-ctx.Done()
	}
	return err
}

var errLogin = errors.New("etcd: no answer within the dial timeout")

// explain adds to an unknown answer why there is none, if the certificates do not please, or no
// endpoint can even be dialed: the client keeps that for itself, and tries until time is up.
// Nothing was acquired, so it is [backend.ErrUnavailable].
func (t target) explain(ctx context.Context, err error) error {
	if backend.AnswerOf(err) != backend.Unknown || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	if failed := t.transport.failure(); failed != nil {
		if ctx.Err() == nil {
			err = errors.New("etcd") // the wait was for nothing
		}
		return fmt.Errorf("%w: %w: %w", backend.ErrUnavailable, err, failed)
	}
	if ctx.Err() != nil {
		return err
	}
	var d net.Dialer
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	why := []error{err}
	for _, endpoint := range t.endpoints {
		scheme, host, _ := strings.Cut(endpoint, "://")
		network := "tcp"
		if scheme == "unix" {
			network = scheme
		}
		conn, dialErr := d.DialContext(ctx, network, host)
		if dialErr == nil {
			_ = conn.Close()
			return fmt.Errorf("%w: %w (%s takes connections: is it an etcd, with TLS on both "+
				"sides or none?)",
				backend.ErrUnavailable, err, host)
		}
		why = append(why, dialErr)
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, errors.Join(why...))
}

// parseURL reads a URL as the package comment describes it. Errors are *[backend.InvalidError] and
// quote nothing that may be secret.
func parseURL(u *url.URL) (target, error) {
	t := target{dialTimeout: DefaultDialTimeout}
	secure := u.Scheme == "etcds"
	if u.Fragment != "" {
		return t, invalid("url", "",
			"has a #fragment; percent-encode special characters of a password")
	}
	prefix := strings.TrimPrefix(u.Path, "/")
	if u.Scheme == "etcd+unix" { // whose path is the socket's
		if u.Host != "" || prefix == "" || strings.HasSuffix(prefix, "/") {
			return t, invalid("url", "",
				"must be etcd+unix:///path/of/the/socket, with three slashes")
		}
		t.endpoints, prefix = []string{"unix://" + u.Path}, ""
	} else if err := t.parseHosts(u.Host, secure); err != nil {
		return t, err
	}
	if u.User != nil {
		t.user = u.User.Username()
		t.password, _ = u.User.Password()
		if t.user == "" || t.password == "" {
			return t, invalid("url", "",
				"has a user without a password, or a password without a user")
		}
	}
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	t.cfg.Prefix = prefix
	if err := t.parseQuery(u.Query(), secure); err != nil {
		return t, err
	}
	_, err := t.cfg.withDefaults()
	return t, err
}

func (t *target) parseHosts(hosts string, secure bool) error {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return invalid("url", hosts, "has an empty host")
		}
		name, port, err := net.SplitHostPort(host)
		if err != nil { // no port, or an IPv6 address without one
			name, port = strings.Trim(host, "[]"), ""
			if strings.Contains(name, ":") && !strings.HasPrefix(host, "[") {
				return invalid("url", host, "is not host:port")
			}
		}
		if port == "" {
			port = "2379"
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || name == "" {
			// The host is not quoted: it may be a password that lacks its @.
			return invalid("url", "", "has a host that is not host:port")
		}
		t.endpoints = append(t.endpoints, scheme+net.JoinHostPort(name, port))
	}
	return nil
}

func (t *target) parseQuery(q url.Values, secure bool) error {
	files := map[string]string{}
	for name, values := range q {
		if len(values) != 1 {
			return invalid("url", name, "is in the query more than once")
		}
		var err error
		switch name {
		case "layout":
			t.cfg.Layout = Layout(values[0])
		case "request_timeout":
			t.cfg.RequestTimeout, err = positive(values[0])
		case "dial_timeout":
			t.dialTimeout, err = positive(values[0])
		case "ca", "cert", "key", "server_name":
			if !secure {
				return invalid("url", name, "needs the etcds scheme")
			}
			files[name] = values[0]
		default:
			known := "dial_timeout, layout, request_timeout"
			if secure {
				known = "ca, cert, dial_timeout, key, layout, request_timeout, server_name"
			}
			return invalid("url", name, "is not a known query parameter (known: "+known+")")
		}
		if err != nil {
			return invalid(name, values[0], "is not a duration such as 3s")
		}
	}
	if !secure {
		return nil
	}
	var err error
	t.tls, err = tlsConfig(files)
	return err
}

// tlsConfig reads the PEM files that a URL names.
func tlsConfig(files map[string]string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: files["server_name"]}
	if ca := files["ca"]; ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, invalid("ca", ca, "cannot be read: "+err.Error())
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalid("ca", ca, "has no certificate in PEM form")
		}
	}
	if (files["cert"] == "") != (files["key"] == "") {
		return nil, invalid("url", "", "has a cert without a key, or a key without a cert")
	}
	if files["cert"] != "" {
		pair, err := tls.LoadX509KeyPair(files["cert"], files["key"])
		if err != nil {
			return nil, invalid("cert", files["cert"],
				"cannot be loaded with its key: "+err.Error())
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

func positive(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err == nil && d <= 0 {
		err = strconv.ErrRange
	}
	return d, err
}
