package rueidisbackend

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestTLS(t *testing.T) { redistest.TLS(t, "rueidis") }

// who may not track
func TestUserAndDatabase(t *testing.T) { redistest.UserAndDatabase(t, "rueidis", "-client") }

func TestSentinel(t *testing.T) { redistest.Sentinels(t, "rueidis") }

func TestCluster(t *testing.T) { redistest.Cluster(t, "rueidis", nil) }

// A server that takes connections and says nothing does not keep Open.
func TestOpenIsBounded(t *testing.T) {
	srv := testserver.Redis(t)
	srv.Stop()
	start := time.Now()
	_, err := backend.Open(quick(t, 50*time.Millisecond), "rueidis://"+srv.Addr())
	want(t, "open", err, context.DeadlineExceeded)
	_, err = backend.Open(t.Context(), "rueidis://"+srv.Addr()+"?request_timeout=200ms")
	if err == nil || time.Since(start) > 4*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	srv.Cont()
}

func TestNewRefuses(t *testing.T) {
	good := rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}}
	for name, change := range map[string]func(*rueidis.ClientOption, *Config){
		"no address": func(o *rueidis.ClientOption, _ *Config) { o.InitAddress = nil },
		"replicas":   func(o *rueidis.ClientOption, _ *Config) { o.ReplicaOnly = true },
		"reads elsewhere": func(o *rueidis.ClientOption, _ *Config) {
			o.SendToReplicas = func(rueidis.Completed) bool { return true }
		},
		"RESP2":            func(o *rueidis.ClientOption, _ *Config) { o.AlwaysRESP2 = true },
		"without tracking": func(o *rueidis.ClientOption, _ *Config) { o.DisableCache = true },
		"prefix":           func(_ *rueidis.ClientOption, c *Config) { c.Prefix = "{x}" },
		"timeout":          func(_ *rueidis.ClientOption, c *Config) { c.RequestTimeout = -1 },
	} {
		o, cfg := good, Config{}
		change(&o, &cfg)
		_, err := New(o, cfg)
		want(t, name, err, backend.ErrInvalid)
	}
	_, err := New(good, Config{})
	want(t, "nobody there", err, backend.ErrUnavailable)

	srv := testserver.SharedRedis(t)
	told := make(chan struct{}, 100)
	b, err := New(rueidis.ClientOption{
		InitAddress: []string{srv.Addr()}, OnInvalidations: func([]rueidis.RedisMessage) {
			told <- struct{}{}
		},
	}, Config{Prefix: "mine:"})
	want(t, "new", err, nil)
	redistest.RoundTrip(t, b, false)
	<-told // the program's own hook is called, too
	want(t, "close", b.Close(), nil)
	want(t, "close again", b.Close(), nil)
}

func TestParseURL(t *testing.T) {
	for raw, wrong := range map[string]string{
		"rueidis://h/3?prefix=a:&held_answers=true": "",
		"rueidiss+cluster://h1,h2:7":                "",
		"rueidis+sentinel://h/m/2":                  "",
		"rueidis://h1,h2": "say rueidis+sentinel:// or " +
			"rueidis+cluster://",
		"rueidis://h?ca=x": "needs a rueidiss scheme",
		"rueidis://h?pool_size=3": "not a known query parameter (known: allow_eviction, " +
			"dialect, held_answers, max_ttl, prefix, replica_lag, replicas, " +
			"request_timeout, retention)",
		"rueidis://h?held_answers=perhaps": "not valid",
	} {
		scheme, rest, _ := strings.Cut(raw, "://")
		hosts, path, _ := strings.Cut(rest, "/")
		if i := strings.IndexByte(rest, '?'); i >= 0 && !strings.Contains(rest[:i], "/") {
			hosts, path = rest[:i], rest[i:]
		} else {
			path = "/" + path
		}
		u, err := url.Parse(scheme + "://" + path)
		want(t, "parse", err, nil)
		u.Host = hosts
		got, err := parseURL(u)
		if wrong == "" && err != nil ||
			wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s: %+v, %v; want %q", raw, got, err, wrong)
		}
		if strings.Contains(raw, "held_answers=true") &&
			(!got.heldAnswers || got.DB != 3 || got.Config.Prefix != "a:") {
			t.Errorf("%s: %+v", raw, got)
		}
	}
}

// Who the primaries of a cluster are is asked as often as a request may take, or each five seconds:
// a primary that hangs tells of no failover.
//
// covers: B1
func TestTopologyIsReadAgain(t *testing.T) {
	for _, c := range []struct{ timeout, theirs, want time.Duration }{
		{timeout: 3 * time.Second, want: 3 * time.Second},
		{timeout: time.Millisecond, want: time.Second},
		{timeout: time.Minute, want: refresh},
		{timeout: time.Second, theirs: time.Hour, want: time.Hour},
	} {
		b := &Backend{cfg: store.Config{RequestTimeout: c.timeout}, conns: newConns(c.timeout)}
		var o rueidis.ClientOption
		o.ClusterOption.ShardsRefreshInterval = c.theirs
		if got := b.settings(o).ClusterOption.ShardsRefreshInterval; got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
