package redistest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// of is the URL of a test server for the backend of a plain scheme.
func of(url, scheme string) string { return scheme + strings.TrimPrefix(url, "redis") }

func watched(ctx context.Context, t testing.TB, b backend.Backend,
	c backend.Claim,
) <-chan backend.Wake {
	t.Helper()
	wake, err := b.Watch(ctx, c)
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	return wake
}

// RoundTrip is what each way to reach a server must be good for: all verbs, both ways to be woken,
// and an observation. In a cluster a message may be lost between the nodes; told is false if one
// was.
func RoundTrip(t *testing.T, b backend.Backend, cluster bool) (told bool) {
	t.Helper()
	c := storetest.Claim(storetest.Key(t))
	queued := storetest.Claim(c.Key)
	queued.Queue, queued.WaiterTTL = true, 10*time.Second
	g := storetest.Acquired(t, b, c)
	wake, handed := watched(t.Context(), t, b, storetest.Claim(c.Key)), watched(t.Context(), t, b,
		queued)
	_, err := b.TryAcquire(t.Context(), queued)
	storetest.Want(t, "second acquire", err, backend.ErrHeld)
	storetest.Want(t, "renew", b.Renew(t.Context(), c), nil)
	storetest.Want(t, "release", storetest.Release(t.Context(), b, c), nil)
	told = storetest.WokenUnlessLost(t, handed, cluster)
	// A repeat, or asked for as the message was lost.
	if next := storetest.Acquired(t, b, queued); next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
	storetest.Want(t, "release", storetest.Release(t.Context(), b, queued), nil)
	told = storetest.WokenUnlessLost(t, wake, cluster) && told // now the key is free
	observer := Observe(t, b, c.Key)
	observer.SeesAll(t)
	observer.Leave()
	return told
}

// TLS reaches a server by it, with a client certificate, and refuses a server that it cannot trust.
func TLS(t *testing.T, scheme string) {
	srv := testserver.Redis(t, testserver.WithTLS(),
		testserver.WithArgs("--tls-auth-clients", "yes"))
	to := of(srv.URL(), scheme) + "?"
	files := url.Values{
		"ca": {srv.TLS.CAFile}, "cert": {srv.TLS.CertFile},
		"key": {srv.TLS.KeyFile},
	}
	RoundTrip(t, storetest.Opened[backend.Backend](t, to+files.Encode()), false)

	for name, change := range map[string]func(url.Values){
		"an authority that nobody knows": func(q url.Values) { q.Del("ca") },
		"another name": func(q url.Values) {
			q.Set("server_name", "example.org")
		},
	} {
		q, err := url.ParseQuery(files.Encode())
		storetest.Want(t, "parse", err, nil)
		change(q)
		_, err = backend.Open(t.Context(), to+q.Encode())
		storetest.Want(t, name, err, backend.ErrUnavailable)
		if !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v says nothing of a certificate", name, err)
		}
	}
	if _, err := backend.Open(t.Context(), to+url.Values{"ca": files["ca"]}.Encode()); err == nil {
		t.Error("opened without a client certificate")
	}
	if _, err := backend.Open(t.Context(), scheme+"://"+srv.Addr()); err == nil {
		t.Error("opened without TLS")
	}
}

// UserAndDatabase reaches a server by the names and the database of a URL. refused are other users,
// by what a server that knows them lets them do, whom the backend can do nothing for.
func UserAndDatabase(t *testing.T, scheme string, refused ...string) {
	srv := testserver.Redis(t, testserver.WithPassword("p@ss/w:rd"))
	to := func(user, rest string) string { return scheme + "://" + user + "@" + srv.Addr() + rest }
	setUser := func(words ...string) {
		srv.MustDo(append(append([]string{"ACL", "SETUSER"}, words...), AllChannels(srv)...)...)
	}
	setUser("ann", "on", ">ann's", "+@all", "allkeys")
	three := storetest.Opened[backend.Backend](t, to(":p%40ss%2Fw%3Ard", "/3"))
	RoundTrip(t, three, false)
	RoundTrip(t, storetest.Opened[backend.Backend](t, to("ann:ann%27s", "/0")), false)
	c := storetest.Claim(storetest.Key(t))
	storetest.Acquired(t, three, c)
	if n := srv.MustDo("EXISTS", layout(t).Key(c.Key)); n != "0" {
		t.Error("the lock of database 3 is in database 0")
	}
	wrong := map[string]error{
		to(":wrong", ""):                           backend.ErrDenied,
		to(":p%40ss%2Fw%3Ard", "/99"):              nil, // any
		scheme + "://:p%40ss%2Fw%3Ard@127.0.0.1:1": backend.ErrUnavailable,
	}
	for i, rule := range refused {
		name := fmt.Sprint("bob", i)
		setUser(name, "on", ">s3cret-pw", "+@all", rule, "allkeys")
		wrong[to(name+":s3cret-pw", "")] = backend.ErrDenied
	}
	for raw, target := range wrong {
		_, err := backend.Open(t.Context(), raw)
		if err == nil || target != nil && !errors.Is(err, target) {
			t.Fatalf("%s: %v, want %v", raw, err, target)
		}
		if strings.Contains(err.Error(), "p@ss") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("password in %q", err)
		}
	}
}

// Sentinels has the primary die: locks go on with the next one; those who watch are woken by it,
// and a watch and an observation live through it.
//
// covers: R14
func Sentinels(t *testing.T, scheme string) {
	testserver.OnlyInAll(t, "a set of Sentinels")
	t.Parallel()
	set := testserver.Sentinel(t, testserver.WithPassword("s3cret-pw"))
	to := of(set.URL(), scheme)
	b := storetest.Opened[backend.Backend](t, to)
	RoundTrip(t, b, false)
	_, err := backend.Open(t.Context(), strings.Replace(to, "mymaster", "nobody", 1))
	storetest.Want(t, "a master that sentinels do not know", err, backend.ErrUnavailable)
	_, err = backend.Open(t.Context(), strings.Replace(to, "s3cret-pw", "wrong", 1))
	storetest.Want(t, "wrong password", err, backend.ErrDenied)

	free, held := storetest.Claim("survivor"), storetest.Claim("held")
	storetest.Acquired(t, b, held)
	wakes := []<-chan backend.Wake{
		watched(t.Context(), t, b, free),
		watched(t.Context(), t, b, storetest.Claim(held.Key)),
	}
	observer := Observe(t, b, free.Key)
	old, err := set.Current()
	storetest.Want(t, "current", err, nil)
	old.Kill()
	set.AwaitFailover(t, old)
	c := storetest.Claim(free.Key)
	storetest.Eventually(t, "acquire after the failover", func() error {
		_, err := b.TryAcquire(t.Context(), c)
		return err
	})
	RoundTrip(t, b, false)
	for _, wake := range wakes { // by the new subscription, if by nothing else
		storetest.Woken(t, wake)
	}
	storetest.Want(t, "release", storetest.Release(t.Context(), b, c), nil)
	storetest.Woken(t, wakes[0])
	observer.Recovers(t)
}

// Cluster reaches the locks of each primary, and survives one. program is a client that a program
// has made of such a cluster, or nil.
//
// covers: R11, R13
func Cluster(t *testing.T, scheme string, program func(*testserver.ClusterSet) backend.Backend) {
	testserver.OnlyInAll(t, "a cluster and its failover")
	t.Parallel()
	set := testserver.Cluster(t, testserver.WithReplicas(1))
	b := storetest.Opened[backend.Backend](t, of(set.URL(), scheme))
	name := layout(t).Key
	perNode := map[string]int{}
	for i := range 30 { // three locks on each primary and more: none is reached by chance only
		c := storetest.Claim(fmt.Sprint("{a}:", i))
		storetest.Acquired(t, b, c)
		owner, err := set.Owner(name(c.Key))
		storetest.Want(t, "owner", err, nil)
		perNode[owner.Addr()]++
		if n := owner.MustDo("EXISTS", name(c.Key)); n != "1" {
			t.Errorf("%s is not where its slot is", c.Key)
		}
	}
	if len(perNode) != 3 {
		t.Errorf("30 locks are on %v: braces in names must not draw them together", perNode)
	}
	told := false
	for range 5 {
		told = RoundTrip(t, b, true) || told
	}
	if !told {
		t.Error("no release of five woke who watched")
	}
	ClusterHeartbeat(t, set, b, name)
	all := []backend.Backend{b}
	if program != nil {
		all = append(all, program(set))
		RoundTrip(t, all[1], true)
	}

	unsafe := set.Nodes[2] // one of three primaries is enough to lose locks
	unsafe.MustDo("CONFIG", "SET", "maxmemory", "50mb")
	unsafe.MustDo("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	_, err := backend.Open(t.Context(), of(set.URL(), scheme))
	storetest.Want(t, "open with one evicting primary", err, backend.ErrUnsafe)
	unsafe.MustDo("CONFIG", "SET", "maxmemory", "0")
	failover(t, set, all)
}

// failover kills the primary of a lock, which carries the subscription too. All clients must find
// the new one: go-redis by itself looks for it once a minute.
func failover(t *testing.T, set *testserver.ClusterSet, all []backend.Backend) {
	t.Helper()
	b, c := all[0], storetest.Claim("survivor")
	name := layout(t).Key(c.Key)
	wake := watched(t.Context(), t, b, storetest.Claim(c.Key))
	observer := Observe(t, b, c.Key)
	old, err := set.Owner(name)
	storetest.Want(t, "owner", err, nil)
	old.Kill()
	set.AwaitFailover(t, name, old)
	start := time.Now()
	storetest.Eventually(t, "acquire after the failover", func() error {
		_, err := b.TryAcquire(t.Context(), c)
		return err
	})
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the new primary was found after %v", took)
	}
	storetest.Want(t, "release", storetest.Release(t.Context(), b, c), nil)
	storetest.Woken(t, wake)
	observer.Recovers(t)
	for _, b := range all {
		storetest.Eventually(t, "a lock and a watch after the failover", func() error {
			again, err := b.Watch(t.Context(), storetest.Claim(c.Key))
			if err != nil {
				return err
			}
			c := storetest.Claim(c.Key)
			if _, err := b.TryAcquire(t.Context(), c); err != nil {
				return err
			}
			if _, err := b.Release(t.Context(), c); err != nil {
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
}
