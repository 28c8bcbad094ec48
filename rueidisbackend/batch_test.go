package rueidisbackend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Requests that go together are all answered, each with its own answer, also right after SCRIPT FLUSH.
func TestBatchesAnswerAll(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, "rueidis://"+srv.Addr())
	redistest.Crowd(t, srv, b, b.lanes)
}

// While the server is silent, who waits for a lane leaves when its context ends, and what it asked for is not sent. Nobody
// waits for longer than RequestTimeout, counted from the call.
//
// covers: E2, A11
func TestBatchesWait(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, "rueidis://"+srv.Addr()+"?request_timeout=1s")
	acquired(t, b, claim(key(t)))
	srv.Stop()
	start := time.Now()
	var crowd sync.WaitGroup
	ask := func(n int) {
		for range n {
			crowd.Go(func() {
				if err := b.Renew(t.Context(), claim("silent")); backend.AnswerOf(err) != backend.Unknown || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("renew: %v", err)
				}
			})
		}
	}
	ask(20)
	eventually(t, "the lanes to be busy", func() error {
		if busy, waiting := b.lanes.Count(); busy < lanes || waiting == 0 {
			return fmt.Errorf("%d lanes are busy, %d requests wait", busy, waiting)
		}
		return nil
	})
	gone := claim(key(t))
	_, err := b.TryAcquire(quick(t, 20*time.Millisecond), gone)
	want(t, "acquire behind the others", err, context.DeadlineExceeded)
	cancelled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err = b.TryAcquire(cancelled, claim(gone.Key))
	want(t, "acquire behind the others", err, context.Canceled)
	crowd.Wait()
	if took := time.Since(start); took > 1800*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	srv.Cont()
	eventually(t, "acquire", func() error { _, err := b.TryAcquire(t.Context(), claim(key(t))); return err })
	if s, err := b.Inspect(t.Context(), gone.Key); err != nil || len(s.Holders) > 0 {
		t.Errorf("whoever left was granted: %+v, %v", s, err)
	}
}
