package redisbackend

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// roundTrip is what each way to reach a server must be good for.
func roundTrip(t *testing.T, b *Backend) (told bool) {
	t.Helper()
	c := claim(key(t))
	g := acquired(t, b, c)
	wake := watched(t.Context(), t, b, c.Key)
	_, err := b.TryAcquire(t.Context(), claim(c.Key))
	want(t, "second acquire", err, backend.ErrHeld)
	want(t, "renew", b.Renew(t.Context(), c), nil)
	want(t, "release", b.Release(t.Context(), c), nil)
	told = storetest.WokenUnlessLost(t, wake, b.reload != nil)
	if next := acquired(t, b, claim(c.Key)); next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
	return told
}

func TestTLS(t *testing.T) {
	srv := testserver.Redis(t, testserver.WithTLS(), testserver.WithArgs("--tls-auth-clients", "yes"))
	files := url.Values{"ca": {srv.TLS.CAFile}, "cert": {srv.TLS.CertFile}, "key": {srv.TLS.KeyFile}}
	roundTrip(t, opened(t, srv.URL()+"?"+files.Encode()))

	for name, change := range map[string]func(url.Values){
		"an authority that nobody knows": func(q url.Values) { q.Del("ca") },
		"another name":                   func(q url.Values) { q.Set("server_name", "example.org") },
	} {
		q, err := url.ParseQuery(files.Encode())
		want(t, "parse", err, nil)
		change(q)
		_, err = backend.Open(t.Context(), srv.URL()+"?"+q.Encode())
		want(t, name, err, backend.ErrUnavailable)
		if !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v says nothing of a certificate", name, err)
		}
	}
	_, err := backend.Open(t.Context(), srv.URL()+"?"+url.Values{"ca": files["ca"]}.Encode())
	if err == nil {
		t.Error("opened without a client certificate")
	}
	_, err = backend.Open(t.Context(), "redis://"+srv.Addr())
	if err == nil {
		t.Error("opened without TLS")
	}
}

func TestUserAndDatabase(t *testing.T) {
	srv := testserver.Redis(t, testserver.WithPassword("p@ss/w:rd"))
	srv.MustDo(append([]string{"ACL", "SETUSER", "ann", "on", ">ann's", "+@all", "allkeys"}, redistest.AllChannels(srv)...)...)
	three := opened(t, "redis://:p%40ss%2Fw%3Ard@"+srv.Addr()+"/3")
	roundTrip(t, three)
	roundTrip(t, opened(t, "redis://ann:ann%27s@"+srv.Addr()+"/0"))
	c := claim(key(t))
	acquired(t, three, c)
	if n := srv.MustDo("EXISTS", three.store.Layout.Key(c.Key)); n != "0" {
		t.Error("the lock of database 3 is in database 0")
	}
	_, err := backend.Open(t.Context(), srv.URL()+"/99")
	if err == nil || strings.Contains(err.Error(), "p@ss") {
		t.Errorf("database 99: %v", err)
	}
}

// The primary dies: locks go on with the next one, waiters are woken by it, and a watch lives
// through it.
//
// covers: R14
func TestSentinel(t *testing.T) {
	t.Parallel()
	set := testserver.Sentinel(t, testserver.WithPassword("s3cret-pw"))
	b := opened(t, set.URL())
	roundTrip(t, b)
	_, err := backend.Open(t.Context(), strings.Replace(set.URL(), "mymaster", "nobody", 1))
	want(t, "a master that sentinels do not know", err, backend.ErrUnavailable)
	_, err = backend.Open(t.Context(), strings.Replace(set.URL(), "s3cret-pw", "wrong", 1))
	want(t, "wrong password", err, backend.ErrDenied)

	wake := watched(t.Context(), t, b, "survivor")
	old, err := set.Current()
	want(t, "current", err, nil)
	old.Kill()
	set.AwaitFailover(t, old)
	c := claim("survivor")
	eventually(t, "acquire after the failover", func() error { _, err := b.TryAcquire(t.Context(), c); return err })
	roundTrip(t, b)
	woken(t, wake) // by the new subscription, if by nothing else
	want(t, "release", b.Release(t.Context(), c), nil)
	woken(t, wake)
}

// covers: R11, R13
func TestCluster(t *testing.T) {
	t.Parallel()
	set := testserver.Cluster(t, testserver.WithReplicas(1))
	b := opened(t, set.URL())
	perNode := map[string]int{}
	for i := range 30 { // three locks on each primary and more: none is reached by chance only
		c := claim(fmt.Sprint("{a}:", i))
		acquired(t, b, c)
		owner, err := set.Owner(b.store.Layout.Key(c.Key))
		want(t, "owner", err, nil)
		perNode[owner.Addr()]++
		if n := owner.MustDo("EXISTS", b.store.Layout.Key(c.Key)); n != "1" {
			t.Errorf("%s is not where its slot is", c.Key)
		}
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
	mine := redis.NewClusterClient(&redis.ClusterOptions{Addrs: set.Addrs()})
	defer mine.Close()
	programs := on(t, mine, Config{})
	roundTrip(t, programs)

	unsafe := set.Nodes[2] // one of three primaries is enough to lose locks
	unsafe.MustDo("CONFIG", "SET", "maxmemory", "50mb")
	unsafe.MustDo("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	_, err := backend.Open(t.Context(), set.URL())
	want(t, "open with one evicting primary", err, backend.ErrUnsafe)
	unsafe.MustDo("CONFIG", "SET", "maxmemory", "0")

	failover(t, set, b, programs)
}

// failover kills the primary of a lock, which carries the subscription too. Both clients must find
// the new one: go-redis by itself looks for it once a minute.
func failover(t *testing.T, set *testserver.ClusterSet, b, programs *Backend) {
	t.Helper()
	const name = "survivor"
	wake := watched(t.Context(), t, b, name)
	old, err := set.Owner(b.store.Layout.Key(name))
	want(t, "owner", err, nil)
	old.Kill()
	set.AwaitFailover(t, b.store.Layout.Key(name), old)
	start := time.Now()
	c := claim(name)
	eventually(t, "acquire after the failover", func() error { _, err := b.TryAcquire(t.Context(), c); return err })
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the new primary was found after %v", took)
	}
	want(t, "release", b.Release(t.Context(), c), nil)
	woken(t, wake)
	eventually(t, "acquire by the program's client", func() error {
		c := claim(name)
		if _, err := programs.TryAcquire(t.Context(), c); err != nil {
			return err
		}
		return programs.Release(t.Context(), c)
	})
	eventually(t, "watch after the failover", func() error {
		again, err := b.Watch(t.Context(), claim(name))
		if err != nil {
			return err
		}
		c := claim(name)
		if _, err := b.TryAcquire(t.Context(), c); err != nil {
			return err
		}
		if err := b.Release(t.Context(), c); err != nil {
			return err
		}
		select {
		case <-again:
			return nil
		case <-time.After(time.Second):
			return errors.New("not woken")
		}
	})
}
