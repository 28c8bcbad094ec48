package redistest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Starts checks that the backend of a URL scheme gives the same answers to who does not wait.
func Starts(t *testing.T, scheme string) {
	srv := testserver.SharedRedis(t)
	p := testserver.NewProxy(t, srv.Addr())
	for name, query := range map[string]string{"lanes": "?request_timeout=2s", "no lanes, for a look at replicas": "?replicas=1&request_timeout=3s"} {
		t.Run(name, func(t *testing.T) {
			b := Dial(t, scheme+"://"+p.Addr()+query)
			if name == "lanes" {
				answers(t, b)
			}
			srv.MustDo("SCRIPT", "FLUSH") // a no is a no, also when the script has to be sent and no replica is there to be waited for
			// The connection is there before the network is silent: rueidis makes the one that replicas are waited for on without a ctx.
			if _, err := start(t, b, storetest.Patience, backend.Renew, storetest.Claim(storetest.Key(t))); !errors.Is(err, backend.ErrLost) {
				t.Errorf("a renewal of what is not held: %v", err)
			}
			unanswered(t, b, p)
			ended(t, b)
		})
	}
}

// start waits, as a test may.
func start(t *testing.T, b backend.Backend, limit time.Duration, v backend.Verb, c backend.Claim) (g backend.Grant, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // which is nobody's business
	done := make(chan struct{})
	starter, ok := b.(backend.Starter)
	if !ok {
		t.Fatalf("a %T is no Starter", b)
	}
	starter.Start(ctx, limit, v, c, func(grant backend.Grant, answer error) {
		g, err = grant, answer
		close(done)
	})
	select {
	case <-done:
	case <-time.After(storetest.Patience):
		t.Fatalf("no answer to verb %d", v)
	}
	return g, err
}

func answers(t *testing.T, b backend.Backend) {
	t.Helper()
	key := storetest.Key(t)
	c, other := storetest.Claim(key), storetest.Claim(key)
	g, err := start(t, b, storetest.Patience, backend.Acquire, c)
	if err != nil || g.Token == 0 || g.TTL < c.TTL {
		t.Fatalf("Acquire: %+v, %v", g, err)
	}
	bad := other
	bad.Key = ""
	for _, step := range []struct {
		what  string
		verb  backend.Verb
		claim backend.Claim
		want  error
	}{
		{"another's acquire", backend.Acquire, other, backend.ErrHeld},
		{"an acquire without a key", backend.Acquire, bad, backend.ErrInvalid},
		{"a renewal without a key", backend.Renew, bad, backend.ErrInvalid},
		{"a release without a key", backend.Release, bad, backend.ErrInvalid},
		{"a renewal", backend.Renew, c, nil},
		{"another's renewal", backend.Renew, other, backend.ErrLost},
		{"another's release", backend.Release, other, backend.ErrLost},
		{"a release", backend.Release, c, nil},
		{"a second release", backend.Release, c, backend.ErrLost},
	} {
		if _, err := start(t, b, storetest.Patience, step.verb, step.claim); !errors.Is(err, step.want) {
			t.Errorf("%s: %v, want %v", step.what, err, step.want)
		}
	}
	again, err := start(t, b, storetest.Patience, backend.Acquire, storetest.Claim(key))
	if err != nil || again.Token <= g.Token {
		t.Errorf("token %d after %d, %v", again.Token, g.Token, err)
	}
}

// unanswered sends into a silent network: the answer is unknown, when the limit is over, and not when a longer one is.
func unanswered(t *testing.T, b backend.Backend, p *testserver.Proxy) {
	t.Helper()
	p.Set(testserver.Fault{Mode: testserver.Hold})
	defer p.Pass()
	const limit = 100 * time.Millisecond
	sent := time.Now()
	_, err := start(t, b, limit, backend.Renew, storetest.Claim(storetest.Key(t)))
	if backend.AnswerOf(err) != backend.Unknown || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer is %v, want an unknown one for the time", err)
	}
	if d := time.Since(sent); d < limit || d > 15*limit {
		t.Errorf("no answer was known after %v, want %v", d, limit)
	}
}

func ended(t *testing.T, b backend.Backend) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := start(t, b, storetest.Patience, backend.Acquire, storetest.Claim("ended")); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}
