package redistest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// HungServer lets 200 callers come and go, each for 50 ms, while the server is there and silent:
// what they leave behind is bounded by most goroutines (besides the timers of the callers, which
// may all run at once), and ends with the request timeout; and when the server is back, it is not
// flooded.
func HungServer(t *testing.T, scheme string, most int) {
	const callers, timeout = 200, 500 * time.Millisecond
	srv := testserver.Redis(t)
	b := Dial(t, scheme+"://"+srv.Addr()+"?request_timeout="+timeout.String())
	defer func() { storetest.Want(t, "close", b.Close(), nil) }()
	storetest.Eventually(t, "an answer", func() error {
		_, err := b.TryAcquire(t.Context(), storetest.Claim(storetest.Key(t)))
		return err
	})
	before, calls := runtime.NumGoroutine(), scripts(srv)
	srv.Stop()
	var crowd sync.WaitGroup
	var peak int
	began := time.Now()
	for range callers {
		crowd.Go(func() {
			for time.Since(began) < 4*timeout {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				_, err := b.TryAcquire(ctx, storetest.Claim("hung"))
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) &&
					!errors.Is(err, backend.ErrUnavailable) &&
					!strings.Contains(err.Error(), "EOF") &&
					!strings.Contains(err.Error(), "no answer") &&
					!strings.Contains(err.Error(), "closed") &&
					!strings.Contains(err.Error(), "timeout") {
					t.Errorf("acquire: %v", err)
					return
				}
			}
		})
	}
	for time.Since(began) < 4*timeout {
		peak = max(peak, runtime.NumGoroutine())
		time.Sleep(10 * time.Millisecond) // the measurement itself
	}
	crowd.Wait()
	t.Logf("%d goroutines at most besides %d callers and %d", peak-callers-before, callers, before)
	if extra := peak - callers - before; extra > most {
		t.Errorf("%d callers left %d goroutines behind, want at most %d", callers, extra, most)
	}
	storetest.Eventually(t, "the end of what was left behind", func() error {
		if n := runtime.NumGoroutine(); n > before+16 {
			return errors.New("still there")
		}
		return nil
	})
	srv.Cont()
	storetest.Eventually(t, "an answer", func() error {
		_, err := b.TryAcquire(t.Context(), storetest.Claim(storetest.Key(t)))
		return err
	})
	if n := scripts(srv) - calls; n > 8*most {
		t.Errorf("%d scripts were run when the server was back", n)
	} else {
		t.Logf("%d scripts were run when the server was back", n)
	}
}

// Answers waits until the server does, within a request timeout that is short for a busy machine.
func Answers(t *testing.T, b backend.Backend) {
	t.Helper()
	storetest.Eventually(t, "an answer", func() error {
		_, err := b.TryAcquire(t.Context(), storetest.Claim(storetest.Key(t)))
		return err
	})
}

// Clients opens a backend in each of the ways in which its client may have been set up.
type Clients func(t *testing.T, addr string, timeout time.Duration) map[string]backend.Backend

// RequestTimeout has the server be there and silent. Without a deadline that is sooner
// RequestTimeout is one, and it is not mistaken for the caller's.
//
// covers: E2
func RequestTimeout(t *testing.T, clients Clients) {
	srv := testserver.Redis(t)
	later, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, b := range clients(t, srv.Addr(), 400*time.Millisecond) {
		for kind, ctx := range map[string]context.Context{
			"background":  context.Background(),
			"cancellable": t.Context(), "later": later,
		} {
			Answers(t, b)
			srv.Stop()
			start := time.Now()
			err := b.Renew(ctx, storetest.Claim(storetest.Key(t)))
			if backend.AnswerOf(err) != backend.Unknown ||
				errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
			if took := time.Since(start); took < 300*time.Millisecond || took > 4*time.Second {
				t.Errorf("%s, %s: it took %v", name, kind, took)
			}
			srv.Cont()
		}
		Answers(t, b)
	}
}

// CloseIsBounded has the server fall silent: that does not keep Close, and what is asked afterwards
// is refused.
//
// covers: E2
func CloseIsBounded(t *testing.T, clients Clients) {
	p := testserver.NewProxy(t, testserver.SharedRedis(t).Addr())
	for name, b := range clients(t, p.Addr(), 400*time.Millisecond) {
		Answers(t, b)
		queued := storetest.Claim(storetest.Key(t))
		queued.Queue, queued.WaiterTTL = true, time.Minute
		watched(t.Context(), t, b, storetest.Claim(storetest.Key(t)))
		watched(t.Context(), t, b, queued)
		p.Set(testserver.Fault{Mode: testserver.HalfOpen})
		if err := b.Renew(t.Context(), queued); backend.AnswerOf(err) != backend.Unknown {
			t.Errorf("%s: renew: %v", name, err)
		}
		start := time.Now()
		storetest.Want(t, name+": close", b.Close(), nil)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: Close took %v", name, took)
		}
		_, err := b.Watch(t.Context(), queued)
		storetest.Want(t, name+": watch", err, backend.ErrClosed)
		storetest.Want(t, name+": renew", b.Renew(t.Context(), queued), backend.ErrClosed)
		p.Pass()
	}
}

// SilentPrimary has one primary of a cluster be there and silent: however many requests wait for
// it, those for keys of the others are answered.
func SilentPrimary(t *testing.T, set *testserver.ClusterSet, url string) {
	const requests = 2000
	l := lockOn(t, set.Nodes[0], url)
	keyOf := func(srv *testserver.Server) string {
		for i := 0; ; i++ {
			key := fmt.Sprint(storetest.Key(t), i)
			if _, err := srv.Do("EXISTS", l.b.LockKey(key)); err == nil { // not MOVED
				return key
			}
		}
	}
	silent, healthy := keyOf(set.Nodes[0]), keyOf(set.Nodes[1])
	set.Nodes[0].Stop()
	defer set.Nodes[0].Cont()
	ctx, cancel := context.WithCancel(t.Context())
	var crowd sync.WaitGroup
	defer crowd.Wait()
	defer cancel()
	for range requests {
		crowd.Go(func() { _ = l.b.Renew(ctx, storetest.Claim(silent)) })
	}
	// A second more, and the others take it for dead.
	for began := time.Now(); time.Since(began) < time.Second; {
		bounded, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := l.b.Inspect(bounded, healthy)
		cancel()
		if err != nil {
			t.Fatalf("while %d requests wait for another primary: %v", requests, err)
		}
	}
}

// HungPrimary holds a lock while the primary that it is on hangs for good: a replica of it takes
// over, and a renewal that it answers keeps the hold. The TTL is the default, half as long again as
// what doctor reckons with for the time-out of these nodes.
//
// covers: R11, R13
func HungPrimary(t *testing.T, scheme string) {
	testserver.OnlyInAll(t, "a cluster and its failover")
	t.Parallel()
	set := testserver.Cluster(t, testserver.WithReplicas(1))
	url := of(set.URL(), scheme)
	l, other := Quiet(t, Closing(t, url), locker.Config{}), Quiet(t, Closing(t, url),
		locker.Config{})
	name := layout(t).Key("k")
	old, err := set.Owner(name)
	storetest.Want(t, "owner", err, nil)
	g, err := l.Lock(t.Context(), "k")
	storetest.Want(t, "lock", err, nil)
	storetest.Eventually(t, "the grant on a replica", func() error {
		for _, n := range set.Nodes {
			if n != old && n.MustDo("DBSIZE") != "0" {
				return nil
			}
		}
		return errors.New("on none")
	})
	if err := g.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	old.Stop()
	defer old.Cont()
	until := g.Until() // only another server answers from here on
	set.AwaitFailover(t, name, old)
	served := time.Now()
	storetest.Eventually(t, "a renewal by the new primary", func() error {
		if err := g.Check(t.Context()); errors.Is(err, locker.ErrLost) {
			t.Fatalf("%v after another serves: %v", time.Since(served), err)
		}
		if !g.Until().After(until) {
			return errors.New("not renewed")
		}
		return nil
	})
	t.Logf("renewed %v after another serves", time.Since(served))
	if _, err := other.TryLock(t.Context(), "k"); !errors.Is(err, locker.ErrNotAcquired) {
		t.Errorf("TryLock of another client = %v, want ErrNotAcquired", err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}
