package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// With the memory used up, nothing new is locked, but what is held can be kept and given back.
//
// covers: R6
func TestOutOfMemory(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, srv.URL())
	held, noneInFlight, repeated, unsure := claim(key(t)), claim(key(t)), claim(key(t)),
		claim(key(t))
	acquired(t, b, held)
	acquired(t, b, noneInFlight)
	noneInFlight.NoneInFlight = true
	grant := acquired(t, b, repeated)
	srv.MustDo("CONFIG", "SET", "maxmemory", "1")

	_, err := b.TryAcquire(t.Context(), claim(key(t)))
	want(t, "acquire", err, backend.ErrUnavailable)
	fresh := opened(t, srv.URL()) // noeviction: opens, and finds out when it acquires
	_, err = fresh.TryAcquire(t.Context(), claim(key(t)))
	want(t, "acquire by another", err, backend.ErrUnavailable)

	before := deadline(t, srv, b, held)
	held.TTL = 2 * time.Minute
	want(t, "renew", b.Renew(t.Context(), held), nil)
	if after := deadline(t, srv, b, held); after < before+80_000 {
		t.Errorf("the lease was renewed from %d to %d", before, after)
	}
	if g, err := b.TryAcquire(t.Context(), repeated); err != nil || g.Token != grant.Token {
		t.Errorf("repeated acquire: %+v, %v", g, err)
	}
	want(t, "release", storetest.Release(t.Context(), b, held), nil)
	want(t, "release with none in flight", storetest.Release(t.Context(), b, noneInFlight), nil)
	want(t, "release of what never held", storetest.Release(t.Context(), b, unsure),
		backend.ErrLost)
	srv.MustDo("CONFIG", "SET", "maxmemory", "0")
	for _, c := range []backend.Claim{held, unsure} {
		_, err = b.TryAcquire(t.Context(), c)
		want(t, "acquire after release", err, backend.ErrLost) // the tombstones were stored
	}
}

// deadline is when the key of a lock nobody waits for ends, which is as long after the lease as
// before.
func deadline(t *testing.T, srv *testserver.Server, b *Backend, c backend.Claim) (x int64) {
	t.Helper()
	if _, err := fmt.Sscan(srv.MustDo("PTTL", b.store.Layout.Key(c.Key)), &x); err != nil {
		t.Fatal(err)
	}
	return x
}

// covers: R5
func TestEviction(t *testing.T) {
	srv := testserver.Redis(t, testserver.WithArgs("--maxmemory", "50mb", "--maxmemory-policy",
		"volatile-lru"))
	_, err := backend.Open(t.Context(), srv.URL())
	want(t, "open", err, backend.ErrUnsafe)
	if !strings.Contains(err.Error(), "volatile-lru") ||
		!strings.Contains(err.Error(), "allow_eviction") {
		t.Errorf("%v names neither the policy nor the way out", err)
	}
	acquired(t, opened(t, srv.URL()+"?allow_eviction=true"), claim(key(t)))

	b, c := on(t, client(t, srv.Addr(), nil), Config{}), claim(key(t))
	for range 2 { // a no is asked again, and nothing is written before the yes
		_, err = b.TryAcquire(t.Context(), c)
		want(t, "acquire", err, backend.ErrUnsafe)
	}
	if n := srv.MustDo("EXISTS", b.store.Layout.Key(c.Key)); n != "0" {
		t.Error("it was locked all the same")
	}
	srv.MustDo("CONFIG", "SET", "maxmemory-policy", "noeviction")
	acquired(t, b, c)
	srv.MustDo("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	acquired(t, b, claim(key(t))) // a yes is remembered
}

// The documented permissions are enough for a whole pair, and each of them is needed and tried
// when a client is opened.
//
// covers: R20
func TestPermissions(t *testing.T) {
	redistest.EachPermission(t, "redis")

	srv := testserver.Redis(t)
	commands := redistest.Permissions(t)
	noInfo := slices.DeleteFunc(slices.Clone(commands), func(command string) bool {
		return command == "INFO"
	})
	acquired(t, opened(t, redistest.SetUser(t, srv, "redis", noInfo...)+"?allow_eviction=true"),
		claim(key(t)))
	url := redistest.SetUser(t, srv, "redis", commands...)
	_, err := backend.Open(t.Context(), url+"?prefix=other:")
	want(t, "without the keys", err, backend.ErrDenied)
}

// Who may not use channels locks and releases all the same, and is told to poll.
//
// covers: R20
func TestWithoutChannels(t *testing.T) {
	srv := testserver.Redis(t)
	url := "redis://app:pw@" + srv.Addr()
	all := append([]string{"+@all"}, redistest.AllChannels(srv)...)
	users := map[string][]string{
		"no PUBLISH":   append(all[:len(all):len(all)], "-publish"),
		"no SUBSCRIBE": append(all[:len(all):len(all)], "-subscribe"),
	}
	if srv.Version().AtLeast(6, 2) {
		users["no channels"] = []string{"+@all", "resetchannels"}
	}
	for name, rules := range users {
		srv.MustDo(append([]string{"ACL", "SETUSER", "app", "reset", "on", ">pw", "allkeys"},
			rules...)...)
		b, c := opened(t, url), claim(key(t))
		acquired(t, b, c)
		start := time.Now()
		_, err := b.Watch(t.Context(), c)
		if !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, backend.ErrDenied) ||
			time.Since(start) > DefaultRequestTimeout {
			t.Errorf("%s: watch: %v after %v, want ErrUnsupported", name, err, time.Since(start))
		}
		want(t, name+": release", storetest.Release(t.Context(), b, c), nil)
		acquired(t, b, claim(c.Key))
	}
}

func TestCredentials(t *testing.T) {
	srv := testserver.Redis(t, testserver.WithPassword("s3cret-pw"))
	acquired(t, opened(t, srv.URL()), claim(key(t)))
	for name, url := range map[string]string{
		"wrong password": "redis://:s3cret-pw-not@" + srv.Addr(),
		"wrong user":     "redis://ann:s3cret-pw@" + srv.Addr(),
		"no password":    "redis://" + srv.Addr(),
	} {
		_, err := backend.Open(t.Context(), url)
		if !errors.Is(err, backend.ErrDenied) || strings.Contains(err.Error(), "s3cret-pw") {
			t.Errorf("%s: %v, want ErrDenied without the password", name, err)
		}
	}
}

// covers: R15
func TestServerDown(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, srv.URL())
	c := claim(key(t))
	acquired(t, b, c)
	srv.Kill()
	// The first request may meet an old one.
	eventually(t, "broken connections to go", func() error {
		if err := b.Renew(t.Context(), c); !errors.Is(err, backend.ErrUnavailable) {
			return fmt.Errorf("renew: %w", err)
		}
		return nil
	})
	start := time.Now()
	for verb, err := range everyVerb(t.Context(), b) {
		want(t, verb, err, backend.ErrUnavailable)
	}
	_, err := backend.Open(t.Context(), srv.URL())
	want(t, "open", err, backend.ErrUnavailable)
	if took := time.Since(start); took > 3*time.Second { // go-redis would dial five times for each
		t.Errorf("it took %v to say so", took)
	}
	srv.Restart()
	eventually(t, "recovery", func() error { _, err := b.TryAcquire(t.Context(), c); return err })
}

// However often a server was found down, the first request after its return is served.
//
// covers: R15
func TestServerIsBack(t *testing.T) {
	p, b, _ := behind(t, "?pool_size=2")
	p.Set(testserver.Fault{Mode: testserver.Refuse})
	p.CutAll()
	for i := range 10 {
		// The first may meet a broken connection.
		if err := b.Renew(t.Context(), claim(key(t))); i > 2 {
			want(t, "renew", err, backend.ErrUnavailable)
		}
	}
	p.Pass()
	acquired(t, b, claim(key(t)))
}

// A replica answers reads, but its no would be about the past: only a primary may say that a hold
// is lost.
//
// covers: R14, R17
func TestReplica(t *testing.T) {
	soon := testserver.WithArgs("--repl-diskless-sync-delay", "0")
	primary, replica := testserver.Redis(t, soon), testserver.Redis(t, soon)
	before := opened(t, replica.URL())
	replica.MustDo("REPLICAOF", "127.0.0.1", fmt.Sprint(primary.Port()))
	eventually(t, "role", func() error {
		if role := replica.MustDo("ROLE"); !strings.Contains(role, "connected") {
			return errors.New(role)
		}
		return nil
	})
	c := claim(key(t))
	_, err := before.TryAcquire(t.Context(), c)
	want(t, "acquire", err, backend.ErrUnavailable)
	want(t, "renew", before.Renew(t.Context(), c), backend.ErrUnavailable)
	want(t, "release", storetest.Release(t.Context(), before, c), backend.ErrUnavailable)
	c.NoneInFlight = true
	want(t, "release with none in flight", storetest.Release(t.Context(), before, c),
		backend.ErrUnavailable)
	_, err = backend.Open(t.Context(), replica.URL())
	want(t, "open", err, backend.ErrUnavailable)
}

// Refusals that say "not now" are definite: nothing was written.
//
// covers: R7, R15
func TestNotNow(t *testing.T) {
	srv := testserver.Redis(t)
	testserver.OnlyWhere(t, srv, func(v testserver.Version) bool { return v.AtLeast(7, 0) },
		"NOREPLICAS and BUSY: scripts of Redis 6 write without replicas, and the threshold "+
			"has another name")
	b := opened(t, srv.URL())
	held := claim(key(t))
	acquired(t, b, held)
	srv.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
	for verb, err := range everyVerb(t.Context(), b) {
		if verb == "TryAcquire" || verb == "Renew" || verb == "Release" {
			want(t, "NOREPLICAS: "+verb, err, backend.ErrUnavailable)
		}
	}
	want(t, "NOREPLICAS: renew of a hold", b.Renew(t.Context(), held), backend.ErrUnavailable)
	srv.MustDo("CONFIG", "SET", "min-replicas-to-write", "0")
	want(t, "renew", b.Renew(t.Context(), held), nil)

	srv.MustDo("CONFIG", "SET", "busy-reply-threshold", "1")
	endless := client(t, srv.Addr(), nil)
	done := make(chan error, 1)
	go func() { done <- endless.Eval(context.Background(), "while true do end", nil).Err() }()
	eventually(t, "BUSY", func() error {
		if err := b.Renew(t.Context(), held); !errors.Is(err, backend.ErrUnavailable) {
			return fmt.Errorf("renew: %w", err)
		}
		return nil
	})
	srv.MustDo("SCRIPT", "KILL")
	if err := <-done; err == nil {
		t.Error("an endless script ended by itself")
	}
	want(t, "release", storetest.Release(t.Context(), b, held), nil)
}
