package redisbackend

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Many requests on few connections are all answered, each with its own answer, also right after SCRIPT FLUSH.
func TestLanesAnswerAll(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, srv.URL()+"?pool_size=2")
	redistest.Crowd(t, srv, b, b.lanes)
}

// While all connections are occupied, who waits for one leaves when its context ends, and what it asked for is not sent. The
// others go together, as soon as a connection is free.
//
// covers: E2, A11
func TestLanesWait(t *testing.T) {
	p, b, direct := behind(t, "?pool_size=1")
	c := claim(key(t))
	acquired(t, b, c)
	p.Set(testserver.Fault{Mode: testserver.HoldReply, Match: testserver.Containing(c.Key)})
	first := make(chan error, 1)
	go func() { first <- b.Renew(t.Context(), c) }()
	p.Await(func(n testserver.Counts) bool { return n.Held > 0 })

	gone := claim(key(t))
	_, err := b.TryAcquire(quick(t, 20*time.Millisecond), gone)
	want(t, "acquire without a connection", err, context.DeadlineExceeded)
	cancelled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err = b.TryAcquire(cancelled, claim(gone.Key))
	want(t, "acquire without a connection", err, context.Canceled)
	var waiting sync.WaitGroup
	for range 10 {
		waiting.Go(func() { acquired(t, b, claim(key(t))) })
	}
	eventually(t, "ten to wait", func() error {
		if _, waiting := b.lanes.Count(); waiting < 12 {
			return errors.New("not yet")
		}
		return nil
	})
	p.Pass()
	waiting.Wait()
	want(t, "renew", <-first, nil)
	if s, err := direct.Inspect(t.Context(), gone.Key); err != nil || len(s.Holders) > 0 {
		t.Errorf("whoever left was granted: %+v, %v", s, err)
	}
}

// RequestTimeout counts from the call, not from when a connection was free.
//
// covers: E2
func TestLanesTimeOut(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, srv.URL()+"?pool_size=1&request_timeout=200ms")
	acquired(t, b, claim(key(t)))
	srv.Stop()
	start := time.Now()
	var crowd sync.WaitGroup
	for range 5 {
		crowd.Go(func() {
			if err := b.Renew(t.Context(), claim(key(t))); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("renew: %v", err)
			}
		})
	}
	crowd.Wait()
	if took := time.Since(start); took > time.Second {
		t.Errorf("it took %v", took)
	}
	srv.Cont()
	eventually(t, "acquire", func() error { _, err := b.TryAcquire(t.Context(), claim(key(t))); return err })
}
