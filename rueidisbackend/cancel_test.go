package rueidisbackend

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func everyVerb(ctx context.Context, b backend.Backend) map[string]error {
	c := claim("every")
	_, acquire := b.TryAcquire(ctx, c)
	_, watch := b.Watch(ctx, c)
	c.Queue, c.WaiterTTL = true, time.Second
	_, line := b.Watch(ctx, c)
	_, inspect := b.Inspect(ctx, c.Key)
	return map[string]error{
		"TryAcquire": acquire, "Renew": b.Renew(ctx, c), "Release": storetest.Release(ctx, b, c),
		"Watch": watch, "Watch in the queue": line,
		"Inspect": inspect,
	}
}

// With a server that is there and silent, every verb returns when its context is done: at first in
// the caller's goroutine, and also when requests that were left behind have filled the
// connection's ring.
//
// covers: E2, A5, A11
func TestContextEndsEveryVerb(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, "rueidis://"+srv.Addr()+"?request_timeout=8s")
	acquired(t, b, claim(key(t)))
	srv.Stop()
	start := time.Now()
	verbs := func() {
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		for verb, err := range everyVerb(cancelled, b) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled %s: %v", verb, err)
			}
		}
		for verb, err := range everyVerb(quick(t, 20*time.Millisecond), b) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s after its deadline: %v", verb, err)
			}
		}
	}
	verbs()
	// Each leaves some hundred behind, and more than the ring has places for in the end.
	for range 10 {
		var crowd sync.WaitGroup
		ctx := quick(t, 50*time.Millisecond)
		for range 1 << (ringScale - 1) {
			crowd.Go(func() {
				if err := b.Renew(ctx, claim("crowd")); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("renew: %v", err)
				}
			})
		}
		crowd.Wait()
	}
	verbs()
	if took := time.Since(start); took > 7*time.Second {
		t.Errorf("it took %v", took)
	}
	srv.Cont()
	eventually(t, "acquire", func() error {
		_, err := b.TryAcquire(t.Context(), claim(key(t)))
		return err
	})
}

func clients(t *testing.T, addr string, timeout time.Duration) map[string]backend.Backend {
	return map[string]backend.Backend{"ours": opened(t,
		"rueidis://"+addr+"?request_timeout="+timeout.String())}
}

func TestRequestTimeout(t *testing.T) { redistest.RequestTimeout(t, clients) }

// Many more requests than the connection has places for are all answered.
func TestMoreThanTheRing(t *testing.T) {
	b := opened(t, "rueidis://"+testserver.SharedRedis(t).Addr()+"?request_timeout=1m")
	var crowd sync.WaitGroup
	for range 3 << ringScale {
		crowd.Go(func() {
			c := claim("crowd-" + backend.NewOwner())
			c.NoneInFlight = true
			if _, err := b.TryAcquire(t.Context(), c); err != nil {
				t.Errorf("acquire: %v", err)
			} else if _, err := b.Release(t.Context(), c); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
	crowd.Wait()
	if n := int64(len(b.conns.slots)) + b.conns.direct.Load(); n != 0 {
		t.Errorf("%d requests are counted still", n)
	}
}

func TestCloseIsBounded(t *testing.T) { redistest.CloseIsBounded(t, clients) }

// A lost reply is unknown, and nothing is sent twice: a second release would say that the hold was
// lost.
//
// covers: A2, A3, C4
func TestSentOnce(t *testing.T) {
	p := testserver.NewProxy(t, testserver.SharedRedis(t).Addr())
	b := opened(t, "rueidis://"+p.Addr())
	c := claim(key(t))
	acquired(t, b, c)
	want(t, "release", storetest.Release(t.Context(), b, c), nil) // loads the scripts
	c = claim(key(t))
	for name, verb := range map[string]func() error{
		"acquire": func() error { _, err := b.TryAcquire(t.Context(), c); return err },
		"release": func() error { return storetest.Release(t.Context(), b, c) },
	} {
		c = claim(key(t))
		if name == "release" {
			acquired(t, b, c)
		}
		sent := 0
		p.Set(testserver.Fault{
			Mode: testserver.ExecuteThenCut, Next: 1,
			Match: func(request []byte) bool {
				hit := testserver.Containing(c.Key)(request)
				if hit {
					sent++
				}
				return hit
			},
		})
		if err := verb(); backend.AnswerOf(err) != backend.Unknown {
			t.Errorf("%s: %v, want an unknown answer", name, err)
		}
		p.Pass()
		eventually(t, "the connection to be back", func() error {
			_, err := b.Inspect(t.Context(), "none")
			return err
		})
		if sent != 1 {
			t.Errorf("%s was sent %d times", name, sent)
		}
	}
}

// A connection that leads nowhere is given up with the first request that is not answered.
//
// covers: R21, E2
func TestDeadConnection(t *testing.T) {
	p := testserver.NewProxy(t, testserver.SharedRedis(t).Addr())
	b := opened(t, "rueidis://"+p.Addr()+"?request_timeout=8s")
	c := claim(key(t))
	acquired(t, b, c)
	p.Set(testserver.Fault{Mode: testserver.HalfOpen})
	if err := b.Renew(t.Context(), c); backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("renew: %v", err)
	}
	p.Pass() // for new connections; the old one stays dead
	start := time.Now()
	eventually(t, "renew", func() error { return b.Renew(quick(t, 200*time.Millisecond), c) })
	if took := time.Since(start); took > 6*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A server that answers READONLY is left, as its name may belong to another by now.
//
// covers: R14
func TestDemoted(t *testing.T) {
	srv := testserver.Redis(t)
	p := testserver.NewProxy(t, srv.Addr())
	b := opened(t, "rueidis://"+p.Addr())
	c := claim(key(t))
	acquired(t, b, c)
	conns := p.Counts().Conns
	srv.MustDo("REPLICAOF", "127.0.0.1", "1")
	want(t, "renew on a replica", b.Renew(t.Context(), c), backend.ErrUnavailable)
	srv.MustDo("REPLICAOF", "NO", "ONE")
	eventually(t, "renew", func() error { return b.Renew(t.Context(), c) })
	if p.Counts().Conns == conns {
		t.Error("no new connection was made")
	}
}

// covers: E2, G5
func TestHungServer(t *testing.T) { redistest.HungServer(t, "rueidis", 9*inFlight) }

// Requests that go together are all answered, each with its own answer, also right after SCRIPT
// FLUSH.
func TestCrowd(t *testing.T) {
	srv := testserver.Redis(t)
	redistest.Crowd(t, srv, opened(t, "rueidis://"+srv.Addr()))
}

// One request that is not answered in time does not end the connection that the others are
// answered on.
//
// covers: E2
func TestSlowRequestHurtsNobodyElse(t *testing.T) {
	srv := testserver.Redis(t)
	p := testserver.NewProxy(t, srv.Addr())
	b := opened(t, "rueidis://"+p.Addr()+"?request_timeout=1s")
	c := claim(key(t))
	acquired(t, b, c)
	conns := p.Counts().Conns
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	slow := make(chan error, 1)
	go func() {
		// An answer that does not come.
		_, err := send(t.Context(), b, func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		slow <- err
	}()
	for ctx.Err() == nil {
		want(t, "renew", b.Renew(t.Context(), c), nil)
	}
	want(t, "the slow one", <-slow, context.DeadlineExceeded)
	if n := p.Counts().Conns; n != conns {
		t.Errorf("%d connections were made after the first %d", n-conns, conns)
	}
}
