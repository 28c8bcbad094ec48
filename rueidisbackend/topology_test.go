package rueidisbackend

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// ours is a URL of a test server, for this backend.
func ours(url string) string { return "ruei" + strings.TrimPrefix(url, "re") }

// roundTrip is what each way to reach a server must be good for: all verbs, and both ways to be
// woken.
func roundTrip(t *testing.T, b *Backend) (told bool) {
	t.Helper()
	c, line := claim(key(t)), claim("")
	line.Key, line.Queue, line.WaiterTTL = c.Key, true, 10*time.Second
	g := acquired(t, b, c)
	wake, handed := watched(t.Context(), t, b, claim(c.Key)), watched(t.Context(), t, b, line)
	_, err := b.TryAcquire(t.Context(), line)
	want(t, "second acquire", err, backend.ErrHeld)
	want(t, "renew", b.Renew(t.Context(), c), nil)
	want(t, "release", b.Release(t.Context(), c), nil)
	select {
	case w := <-handed:
		if !w.Granted || w.Grant.Token <= g.Token {
			t.Errorf("%+v after token %d", w, g.Token)
		}
	case <-time.After(patience / 4): // a message may be lost between the nodes of a cluster: then asking tells
		if _, err := b.TryAcquire(t.Context(), line); err != nil {
			t.Errorf("not handed over: %v", err)
		}
		t.Log("the message of a hand-over was lost")
	}
	told = storetest.WokenUnlessLost(t, wake, b.conns.cluster)
	want(t, "release", b.Release(t.Context(), line), nil)
	return told
}

func TestTLS(t *testing.T) {
	srv := testserver.Redis(t, testserver.WithTLS(), testserver.WithArgs("--tls-auth-clients", "yes"))
	files := url.Values{"ca": {srv.TLS.CAFile}, "cert": {srv.TLS.CertFile}, "key": {srv.TLS.KeyFile}}
	roundTrip(t, opened(t, ours(srv.URL())+"?"+files.Encode()))
	files.Del("ca")
	_, err := backend.Open(t.Context(), ours(srv.URL())+"?"+files.Encode())
	want(t, "an authority that nobody knows", err, backend.ErrUnavailable)
	if !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v says nothing of a certificate", err)
	}
	if _, err = backend.Open(t.Context(), "rueidis://"+srv.Addr()); err == nil {
		t.Error("opened without TLS")
	}
}

func TestUserAndDatabase(t *testing.T) {
	srv := testserver.Redis(t, testserver.WithPassword("p@ss/w:rd"))
	srv.MustDo(append([]string{"ACL", "SETUSER", "ann", "on", ">ann's", "+@all", "allkeys"}, redistest.AllChannels(srv)...)...)
	srv.MustDo(append([]string{"ACL", "SETUSER", "bob", "on", ">s3cret-pw", "+@all", "-client", "allkeys"}, redistest.AllChannels(srv)...)...)
	three := opened(t, "rueidis://:p%40ss%2Fw%3Ard@"+srv.Addr()+"/3")
	roundTrip(t, three)
	roundTrip(t, opened(t, "rueidis://ann:ann%27s@"+srv.Addr()+"/0"))
	c := claim(key(t))
	acquired(t, three, c)
	if n := srv.MustDo("EXISTS", three.store.Layout.Key(c.Key)); n != "0" {
		t.Error("the lock of database 3 is in database 0")
	}
	for raw, target := range map[string]error{
		"rueidis://:wrong@" + srv.Addr():         backend.ErrDenied,
		"rueidis://bob:s3cret-pw@" + srv.Addr():  backend.ErrDenied, // may not track
		"rueidis://:p%40ss%2Fw%3Ard@127.0.0.1:1": backend.ErrUnavailable,
	} {
		_, err := backend.Open(t.Context(), raw)
		want(t, raw, err, target)
		if strings.Contains(err.Error(), "p@ss") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("password in %q", err)
		}
	}
}

// A server that takes connections and says nothing does not keep Open.
func TestOpenIsBounded(t *testing.T) {
	srv := testserver.Redis(t)
	srv.Stop()
	start := time.Now()
	_, err := backend.Open(quick(t, 50*time.Millisecond), "rueidis://"+srv.Addr())
	want(t, "open", err, context.DeadlineExceeded)
	_, err = backend.Open(t.Context(), "rueidis://"+srv.Addr()+"?request_timeout=200ms")
	if err == nil || time.Since(start) > 2*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	srv.Cont()
}

// The primary dies: locks go on with the next one.
//
// covers: R14
func TestSentinel(t *testing.T) {
	t.Parallel()
	set := testserver.Sentinel(t, testserver.WithPassword("s3cret-pw"))
	b := opened(t, ours(set.URL()))
	roundTrip(t, b)
	old, err := set.Current()
	want(t, "current", err, nil)
	c := claim("survivor")
	acquired(t, b, c)
	wake := watched(t.Context(), t, b, claim(c.Key))
	old.Kill()
	set.AwaitFailover(t, old)
	woken(t, wake)
	eventually(t, "acquire after the failover", func() error { _, err := b.TryAcquire(t.Context(), claim(key(t))); return err })
	roundTrip(t, b)
	_, err = backend.Open(t.Context(), ours(strings.Replace(set.URL(), "s3cret-pw", "wrong", 1)))
	want(t, "wrong password", err, backend.ErrDenied)
}

// covers: R11, R13
func TestCluster(t *testing.T) {
	t.Parallel()
	set := testserver.Cluster(t, testserver.WithReplicas(1))
	b := opened(t, ours(set.URL()))
	perNode := map[string]int{}
	for i := range 30 { // three locks on each primary and more: none is reached by chance only
		c := claim(fmt.Sprint("{a}:", i))
		acquired(t, b, c)
		owner, err := set.Owner(b.store.Layout.Key(c.Key))
		want(t, "owner", err, nil)
		perNode[owner.Addr()]++
	}
	if len(perNode) != 3 {
		t.Errorf("30 locks are on %v: braces in names must not draw them together", perNode)
	}
	told := false
	for range 5 {
		told = roundTrip(t, b) || told
	}
	if !told {
		t.Error("no release of five woke who watched")
	}
	redistest.ClusterHeartbeat(t, set, b, b.store.Layout.Key)
	unsafe := set.Nodes[2] // one of three primaries is enough to lose locks
	unsafe.MustDo("CONFIG", "SET", "maxmemory", "50mb")
	unsafe.MustDo("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	_, err := backend.Open(t.Context(), ours(set.URL()))
	want(t, "open with one evicting primary", err, backend.ErrUnsafe)
	unsafe.MustDo("CONFIG", "SET", "maxmemory", "0")

	const name = "survivor"
	old, err := set.Owner(b.store.Layout.Key(name))
	want(t, "owner", err, nil)
	wake := watched(t.Context(), t, b, claim(name))
	old.Kill()
	set.AwaitFailover(t, b.store.Layout.Key(name), old)
	eventually(t, "acquire after the failover", func() error { _, err := b.TryAcquire(t.Context(), claim(name)); return err })
	woken(t, wake)
	eventually(t, "a watch", func() error {
		_, err := b.Watch(t.Context(), claim(name))
		return err
	})
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
		InitAddress: []string{srv.Addr()}, OnInvalidations: func([]rueidis.RedisMessage) { told <- struct{}{} },
	}, Config{Prefix: "mine:"})
	want(t, "new", err, nil)
	roundTrip(t, b)
	<-told // the program's own hook is called, too
	want(t, "close", b.Close(), nil)
	want(t, "close again", b.Close(), nil)
}

func TestParseURL(t *testing.T) {
	for raw, wrong := range map[string]string{
		"rueidis://h/3?prefix=a:&held_answers=true": "",
		"rueidiss+cluster://h1,h2:7":                "",
		"rueidis+sentinel://h/m/2":                  "",
		"rueidis://h1,h2":                           "say rueidis+sentinel:// or rueidis+cluster://",
		"rueidis://h?ca=x":                          "needs a rueidiss scheme",
		"rueidis://h?pool_size=3":                   "not a known query parameter",
		"rueidis://h?held_answers=perhaps":          "not valid",
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
		if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s: %+v, %v; want %q", raw, got, err, wrong)
		}
		if strings.Contains(raw, "held_answers=true") && (!got.heldAnswers || got.DB != 3 || got.Config.Prefix != "a:") {
			t.Errorf("%s: %+v", raw, got)
		}
	}
}
