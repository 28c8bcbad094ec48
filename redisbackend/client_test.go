package redisbackend

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestNewRefuses(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	endless := redis.NewClusterClient(&redis.ClusterOptions{ReadTimeout: -1})
	defer endless.Close()
	bare := redis.NewClusterClient(&redis.ClusterOptions{
		ReadTimeout:           -2,
		ContextTimeoutEnabled: true,
	})
	defer bare.Close()
	good := client(t, "127.0.0.1:1", nil)
	for name, test := range map[string]struct {
		client redis.UniversalClient
		cfg    Config
		why    string
	}{
		"nil":                    {nil, Config{}, "nil"},
		"nil client":             {(*redis.Client)(nil), Config{}, "nil"},
		"nil cluster":            {(*redis.ClusterClient)(nil), Config{}, "nil"},
		"ring":                   {ring, Config{}, "Ring"},
		"cluster, endless reads": {endless, Config{}, "ReadTimeout"},
		"cluster, no deadlines":  {bare, Config{}, "ReadTimeout"},
		"prefix":                 {good, Config{Prefix: "{x}"}, "braces"},
		"timeout":                {good, Config{RequestTimeout: -1}, "1ms"},
		"retention":              {good, Config{Retention: -1}, "retention"},
	} {
		b, err := New(test.client, test.cfg)
		want(t, name, err, backend.ErrInvalid)
		if b != nil || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%s: %v, %v", name, b, err)
		}
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		ReadTimeout:           -1,
		ContextTimeoutEnabled: true,
	})
	defer cluster.Close()
	on(t, cluster, Config{})
}

// New sends nothing: a program starts without its Redis.
func TestNewIsLazy(t *testing.T) {
	b := on(t, client(t, "127.0.0.1:1", func(o *redis.Options) { o.DialerRetries = 1 }), Config{})
	_, err := b.TryAcquire(t.Context(), claim(key(t)))
	want(t, "acquire", err, backend.ErrUnavailable)
}

func TestClose(t *testing.T) {
	srv := testserver.SharedRedis(t)
	mine := client(t, srv.Addr(), nil)
	b, err := New(mine, Config{})
	want(t, "new", err, nil)
	c := claim(key(t))
	acquired(t, b, c)
	watched(t.Context(), t, b, c.Key)
	for range 2 {
		want(t, "close", b.Close(), nil)
	}
	for verb, err := range everyVerb(t.Context(), b) {
		want(t, verb, err, backend.ErrClosed)
	}
	want(t, "the program's client", mine.Ping(t.Context()).Err(), nil)

	other := opened(t, srv.URL()) // the hold was not released
	_, err = other.TryAcquire(t.Context(), claim(c.Key))
	want(t, "acquire", err, backend.ErrHeld)

	gone := on(t, mine, Config{})
	want(t, "close the client", mine.Close(), nil)
	want(t, "renew on a closed client", gone.Renew(t.Context(), c), backend.ErrClosed)
}

// One program's client serves several backends and the program itself.
func TestSharedClient(t *testing.T) {
	srv := testserver.SharedRedis(t)
	mine := client(t, srv.Addr(), func(o *redis.Options) {
		o.PoolSize, o.MaxActiveConns, o.PoolTimeout = 1, 1, 20*time.Millisecond
	})
	a, b := on(t, mine, Config{Prefix: "a:"}), on(t, mine, Config{Prefix: "b:"})
	c := claim(key(t))
	acquired(t, a, c)
	acquired(t, b, c)
	conn := mine.Conn() // takes the only connection
	want(t, "ping", conn.Ping(t.Context()).Err(), nil)
	// Certainly not sent.
	want(t, "renew without a connection", a.Renew(t.Context(), c), backend.ErrUnavailable)
	want(t, "close", conn.Close(), nil)
	want(t, "renew", a.Renew(t.Context(), c), nil)
}

// Each connection is counted that is made: it may lead to another server than the one before.
//
// covers: K2
func TestConnectionsAreCounted(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	want(t, "listen", err, nil)
	var dials atomic.Uint64
	dial := newDialer(time.Second, nil, &dials)
	for n := range uint64(3) {
		conn, err := dial(t.Context(), "tcp", l.Addr().String())
		want(t, "dial", err, nil)
		if _ = conn.Close(); dials.Load() != n+1 {
			t.Errorf("%d connections are counted, want %d", dials.Load(), n+1)
		}
	}
	_ = l.Close()
	if _, _ = dial(t.Context(), "tcp", l.Addr().String()); dials.Load() != 3 {
		t.Errorf("%d connections are counted after one that was not made, want 3", dials.Load())
	}
}
