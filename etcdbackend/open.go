package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backend"
)

func init() {
	backend.Register("etcd", open)
	backend.Register("etcds", open)
}

// keepAliveTime and keepAliveTimeout have a connection whose peer is silent given up. gRPC takes no shorter time.
const (
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// open makes a client of its own for a URL, and asks the cluster once.
func open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	t, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		t.dialTimeout = max(time.Millisecond, min(t.dialTimeout, time.Until(deadline)))
	}
	client, err := t.client()
	if err != nil {
		return nil, dialError(err)
	}
	b, err := New(client, t.cfg)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	b.owned = true
	if err := b.call(ctx, "open", b.ask); err != nil {
		_ = b.Close()
		return nil, t.because(ctx, err)
	}
	return b, nil
}

// client makes the etcd client. It logs nothing: what goes wrong is in the errors.
func (t target) client() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: t.endpoints, Username: t.user, Password: t.password, TLS: t.tls,
		DialTimeout: t.dialTimeout, DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout,
		Logger: zap.NewNop(),
	})
}

// because adds to an unknown answer why there is none, if no endpoint can even be dialed: the client keeps that for itself, and tries
// until time is up. Nothing was acquired, so it is [backend.ErrUnavailable].
func (t target) because(ctx context.Context, err error) error {
	if backend.AnswerOf(err) != backend.Unknown || ctx.Err() != nil {
		return err
	}
	var d net.Dialer
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var why []error
	for _, endpoint := range t.endpoints {
		u, parseErr := url.Parse(endpoint)
		if parseErr != nil {
			return err
		}
		conn, dialErr := d.DialContext(ctx, "tcp", u.Host)
		if dialErr == nil {
			_ = conn.Close()
			return fmt.Errorf("%w: %w (%s takes connections: is it an etcd, and is TLS wanted on both sides or none?)", backend.ErrUnavailable, err, u.Host)
		}
		why = append(why, dialErr)
	}
	return fmt.Errorf("%w: %w: %w", backend.ErrUnavailable, err, errors.Join(why...))
}

// ask reads nothing from where the locks are.
func (b *Backend) ask(ctx context.Context) error {
	p := b.scheme.at("open")
	_, err := b.client.Get(ctx, p.line, clientv3.WithCountOnly())
	return err
}

// dialError says why a client could not be made: wrong credentials, or no answer. It has no password, as the client's errors
// have none.
func dialError(err error) error {
	b := &Backend{ctx: context.Background()}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: etcd: no answer within the dial timeout", backend.ErrUnavailable)
	}
	return b.failure(context.Background(), err)
}
