package redisbackend

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// behind opens a backend through a proxy, and one that goes straight to the same server.
func behind(t *testing.T, query string) (p *testserver.Proxy, through, direct *Backend) {
	t.Helper()
	srv := testserver.SharedRedis(t)
	p = testserver.NewProxy(t, srv.Addr())
	return p, opened(t, "redis://"+p.Addr()+query), opened(t, srv.URL())
}

// The reply to an acquire is lost after it was executed. The answer is unknown, and asking again
// finds the same grant.
//
// covers: A2, A3
func TestLostReplyToAcquire(t *testing.T) {
	srv := testserver.SharedRedis(t)
	for name, make := range map[string]func(t *testing.T, addr string) *Backend{
		"ours": func(t *testing.T, addr string) *Backend { return opened(t, "redis://"+addr) },
		"a client with retries": func(t *testing.T, addr string) *Backend {
			return on(t, client(t, addr, nil), Config{})
		},
		"a client with retries and RESP2": func(t *testing.T, addr string) *Backend {
			return on(t, client(t, addr, func(o *redis.Options) {
				o.Protocol, o.MaxRetries = 2, 5
			}), Config{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := testserver.NewProxy(t, srv.Addr())
			b := make(t, p.Addr())
			warm := claim(key(t))
			acquired(t, b, warm) // loads the script
			c := claim(key(t))
			p.Set(testserver.Fault{
				Mode:  testserver.ExecuteThenCut,
				Match: testserver.Containing(c.Key), Next: 1,
			})
			requests := p.Counts().Requests
			g, err := b.TryAcquire(t.Context(), c)
			if backend.AnswerOf(err) != backend.Unknown {
				t.Fatalf("%+v, %v; want an unknown answer", g, err)
			}
			if n := p.Counts().Requests - requests; n != 1 {
				t.Errorf("go-redis sent it %d times", n)
			}
			held, err := b.Inspect(t.Context(), c.Key)
			if err != nil || len(held.Holders) != 1 {
				t.Fatalf("%+v, %v; want it to be held", held, err)
			}
			if g := acquired(t, b, c); g.Token != held.Token {
				t.Errorf("token %d, want that of the first attempt, %d", g.Token, held.Token)
			}
		})
	}
}

// A request that waits for replicas is not sent again either. The second release would say that the
// hold was lost, and nothing of the state that the first has saved.
//
// covers: A3, C4, R2
func TestLostReplyBeforeReplicas(t *testing.T) {
	srv := testserver.SharedRedis(t)
	direct := opened(t, srv.URL())
	p := testserver.NewProxy(t, srv.Addr())
	b := on(t, client(t, p.Addr(), nil), Config{Replicas: 1})
	for name, verb := range map[string]func(backend.Claim) error{
		"TryAcquire": func(c backend.Claim) error {
			_, err := b.TryAcquire(t.Context(), claim(c.Key))
			return err
		},
		"Renew": func(c backend.Claim) error { return b.Renew(t.Context(), c) },
		"Release": func(c backend.Claim) error {
			_, err := b.Release(t.Context(), c)
			return err
		},
	} {
		c := claim(key(t))
		if name != "TryAcquire" {
			acquired(t, direct, c)
		}
		c.Save = []byte("state")
		p.Set(testserver.Fault{
			Mode:  testserver.ExecuteThenCut,
			Match: testserver.Containing(c.Key),
		})
		dropped := p.Counts().Dropped
		err := verb(c)
		if backend.AnswerOf(err) != backend.Unknown {
			t.Errorf("%s: %v, want an unknown answer", name, err)
		}
		if n := p.Counts().Dropped - dropped; n != 1 {
			t.Errorf("%s was executed %d times", name, n)
		}
	}
}

// A release whose reply is lost is not sent again: the second one would say that the hold was
// lost.
//
// covers: A3, C4
func TestLostReplyToRelease(t *testing.T) {
	srv := testserver.SharedRedis(t)
	p := testserver.NewProxy(t, srv.Addr())
	b := on(t, client(t, p.Addr(), nil), Config{})
	c := claim(key(t))
	acquired(t, b, c)
	want(t, "release", storetest.Release(t.Context(), b, c), nil) // loads the script
	c = claim(c.Key)
	acquired(t, b, c)
	p.Set(testserver.Fault{
		Mode: testserver.ExecuteThenCut, Match: testserver.Containing(c.Key),
		Next: 1,
	})
	if _, err := b.Release(t.Context(), c); backend.AnswerOf(err) != backend.Unknown {
		t.Fatalf("release: %v, want an unknown answer", err)
	}
	acquired(t, b, claim(c.Key))
}

// An acquire is under way on one connection while the release of the same claim, sent on another,
// is executed.
//
// covers: A4
func TestReleaseOvertakesAcquire(t *testing.T) {
	p, slow, direct := behind(t, "")
	acquired(t, direct, claim(key(t))) // loads the script
	c := claim(key(t))
	p.Set(testserver.Fault{Mode: testserver.Hold, Match: testserver.Containing(c.Key)})
	_, err := slow.TryAcquire(quick(t, 100*time.Millisecond), c)
	if backend.AnswerOf(err) != backend.Unknown {
		t.Fatalf("acquire: %v, want an unknown answer", err)
	}
	p.Await(func(n testserver.Counts) bool { return n.Held > 0 })
	want(t, "release", storetest.Release(t.Context(), direct, c), backend.ErrLost)
	before := p.Counts().Replies
	p.Pass() // delivers what was held, although its connection is closed
	p.Await(func(n testserver.Counts) bool { return n.Replies > before })
	other := claim(c.Key)
	acquired(t, direct, other)
	_, err = direct.TryAcquire(t.Context(), c)
	want(t, "acquire after release", err, backend.ErrLost)
	if s, err := direct.Inspect(t.Context(), c.Key); err != nil || len(s.Holders) != 1 ||
		s.Holders[0].Owner != other.Owner {
		t.Fatalf("%+v, %v", s, err)
	}
}

// A release with none in flight leaves nothing but the counter.
func TestSettledRelease(t *testing.T) {
	srv := testserver.SharedRedis(t)
	b := opened(t, srv.URL())
	c := claim(key(t))
	c.NoneInFlight = true
	g := acquired(t, b, c)
	want(t, "release", storetest.Release(t.Context(), b, c), nil)
	if s, want := srv.MustDo("GET", b.store.Layout.Key(c.Key)), fmt.Sprintf("h2 %d",
		g.Token); s != want {
		t.Errorf("%q is left, want %q", s, want)
	}
	want(t, "second release", storetest.Release(t.Context(), b, c), backend.ErrLost)
}

// What is not ours is refused by name, and left as it was.
//
// covers: R24
func TestForeignData(t *testing.T) {
	srv := testserver.SharedRedis(t)
	b := opened(t, srv.URL())
	for name, command := range map[string][]string{
		"string":          {"SET", "", "somebody's"},
		"list":            {"RPUSH", "", "a", "b"},
		"set":             {"SADD", "", "a"},
		"sorted set":      {"ZADD", "", "1", "a"},
		"hash":            {"HSET", "", "name", "Ada", "o", "Ada"},
		"hash of version": {"HSET", "", "v", "h7", "f", "1"},
	} {
		c := claim(key(t))
		name, redisKey := name, b.store.Layout.Key(c.Key)
		command[1] = redisKey
		srv.MustDo(command...)
		before := srv.MustDo("DUMP", redisKey)
		_, err := b.TryAcquire(t.Context(), c)
		want(t, name+": acquire", err, backend.ErrForeign)
		want(t, name+": renew", b.Renew(t.Context(), c), backend.ErrForeign)
		want(t, name+": release", storetest.Release(t.Context(), b, c), backend.ErrForeign)
		_, err = b.Inspect(t.Context(), c.Key)
		want(t, name+": inspect", err, backend.ErrForeign)
		if after := srv.MustDo("DUMP", redisKey); after != before {
			t.Errorf("%s was changed", name)
		}
		if ttl := srv.MustDo("PTTL", redisKey); ttl != "-1" {
			t.Errorf("%s was given an expiry: %s", name, ttl)
		}
	}
}

// The server forgets its scripts at any moment.
//
// covers: R9
func TestScriptFlush(t *testing.T) {
	srv := testserver.SharedRedis(t)
	b := opened(t, srv.URL())
	c := claim(key(t))
	for _, verb := range []func() error{
		func() error { _, err := b.TryAcquire(t.Context(), c); return err },
		func() error { return b.Renew(t.Context(), c) },
		func() error { _, err := b.Inspect(t.Context(), c.Key); return err },
		func() error { return storetest.Release(t.Context(), b, c) },
	} {
		srv.MustDo("SCRIPT", "FLUSH")
		want(t, "after SCRIPT FLUSH", verb(), nil)
	}
}

// covers: I2, R23
func TestLayoutV2(t *testing.T) {
	srv := testserver.SharedRedis(t)
	b := opened(t, srv.URL())
	c := claim(key(t))
	g := acquired(t, b, c)
	stored := srv.MustDo("GET", "holdfast:{"+c.Key+"}")
	if want := fmt.Sprintf("h2 %d 15000 %s 1 {", g.Token, c.Owner); !strings.HasPrefix(stored,
		want) || !strings.Contains(stored, `"service":"test"`) {
		t.Errorf("%s, want %s", stored, want)
	}
	if g.Token < 1_700_000_000_000_000 {
		t.Errorf("token %d is not a time in µs", g.Token)
	}
	if ttl, err := srv.Do("PTTL", "holdfast:{"+c.Key+"}"); err != nil || ttl.(int64) < 44_000 ||
		ttl.(int64) > 46_000 {
		t.Errorf("the key lives for %v ms, %v; want the lease and 15 s", ttl, err)
	}
}

// Two programs with different prefixes do not meet; a retention is kept to.
//
// covers: R22
func TestPrefixAndRetention(t *testing.T) {
	srv := testserver.SharedRedis(t)
	a, b := opened(t, srv.URL()+"?prefix=one:&retention=5m"), opened(t, srv.URL()+"?prefix=two:")
	c := claim(key(t))
	acquired(t, a, c)
	acquired(t, b, claim(c.Key))
	c.NoneInFlight = true
	want(t, "release", storetest.Release(t.Context(), a, c), nil)
	// A native release counts from a time that the clock may be short of by Near.
	const most = 300_000 + script.Near/1000 + 1
	ttl, err := srv.Do("PTTL", "one:{"+c.Key+"}") // from the release on
	if err != nil || ttl.(int64) < 290_000 || ttl.(int64) > most {
		t.Errorf("the key lives for %v ms, %v; want 5m", ttl, err)
	}
}
