package redisbackend

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// clients are the ways in which a program may have set up go-redis.
func clients(t *testing.T, addr string, timeout time.Duration) map[string]backend.Backend {
	cfg := Config{RequestTimeout: timeout}
	unread := func(o *redis.Options) { // all that ends is not what takes long
		o.ContextTimeoutEnabled, o.ReadTimeout = true, -1
		o.PoolTimeout, o.DialTimeout, o.WriteTimeout = timeout, timeout, timeout
	}
	return map[string]backend.Backend{
		"ours":     opened(t, "redis://"+addr+"?request_timeout="+timeout.String()),
		"defaults": on(t, client(t, addr, nil), cfg),
		"with context": on(t, client(t, addr, func(o *redis.Options) {
			o.ContextTimeoutEnabled = true
		}), cfg),
		"no timeouts": on(t, client(t, addr, func(o *redis.Options) {
			o.ReadTimeout, o.WriteTimeout = -1, -1
		}), cfg),
		"no end": on(t, client(t, addr, unread), cfg),
		"no deadlines": on(t, client(t, addr, func(o *redis.Options) {
			o.ReadTimeout, o.WriteTimeout = -2, -2
		}), cfg),
	}
}

// With a server that is there and silent, every verb returns when its context is done, whatever
// the client heeds.
//
// covers: E2, A5, A11
func TestContextEndsEveryVerb(t *testing.T) {
	srv := testserver.Redis(t)
	for name, b := range clients(t, srv.Addr(), 8*time.Second) {
		acquired(t, b, claim(key(t)))
		srv.Stop()
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		start := time.Now()
		for verb, err := range everyVerb(cancelled, b) {
			if !errors.Is(err, context.Canceled) || backend.AnswerOf(err) != backend.Unknown &&
				verb != "Watch" {
				t.Errorf("%s: cancelled %s: %v", name, verb, err)
			}
		}
		for verb, err := range everyVerb(quick(t, 20*time.Millisecond), b) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %s after its deadline: %v", name, verb, err)
			}
		}
		if took := time.Since(start); took > 7*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
		srv.Cont()
		acquired(t, b, claim(key(t)))
	}
}

func TestRequestTimeout(t *testing.T) { redistest.RequestTimeout(t, clients) }

// An answer that has come counts, even if the context ends at the same time.
func TestAnswerBeatsCancel(t *testing.T) {
	b := opened(t, testserver.SharedRedis(t).URL())
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		c := claim(key(t))
		go cancel()
		_, err := b.TryAcquire(ctx, c)
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err == nil {
			want(t, "renew of what was granted", b.Renew(t.Context(), c), nil)
		}
	}
}

// Close waits for the request that its caller has left.
func TestCloseWaits(t *testing.T) {
	p, b, _ := behind(t, "")
	p.Set(testserver.Fault{Mode: testserver.HoldReply, Match: testserver.Containing("eval")})
	want(t, "renew", b.Renew(quick(t, 20*time.Millisecond), claim(key(t))),
		context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	want(t, "renew", b.Renew(ctx, claim(key(t))), context.Canceled) // its request goes on
	closed := make(chan error, 1)
	go func() { closed <- b.Close() }()
	eventually(t, "closing", func() error {
		if b.store.Begin(t.Context()) == nil {
			b.store.End()
			return errors.New("requests are still taken")
		}
		return nil
	})
	select {
	case err := <-closed:
		t.Fatal("Close returned while a request was under way:", err)
	default:
	}
	p.Pass()
	want(t, "close", <-closed, nil)
}

func TestCloseIsBounded(t *testing.T) { redistest.CloseIsBounded(t, clients) }
