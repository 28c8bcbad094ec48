package tasks

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
	_ "github.com/holdfast-go/holdfast/redisbackend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	servers = 3
	orders  = 10
	copies  = 3
)

// Each order is enqueued several times, and its first run fails; then each has succeeded once,
// whichever server had its copies.
func TestOnce(t *testing.T) {
	srv := testserver.Redis(t)
	redis := asynq.RedisClientOpt{Addr: srv.Addr()}

	var mu sync.Mutex
	runs, overlaps, running := map[string]int{}, 0, map[string]bool{}
	handler := func(_ context.Context, task *asynq.Task) error {
		order := string(task.Payload())
		mu.Lock()
		runs[order]++
		first := runs[order] == 1
		if running[order] {
			overlaps++
		}
		running[order] = true
		mu.Unlock()
		time.Sleep(20 * time.Millisecond) // so that others come meanwhile
		mu.Lock()
		defer mu.Unlock()
		running[order] = false
		if first {
			return errors.New("the first run fails")
		}
		return nil
	}

	client := asynq.NewClient(redis)
	for range copies {
		for i := range orders {
			task := asynq.NewTask("charge", []byte(strconv.Itoa(i)))
			if _, err := client.Enqueue(task, asynq.MaxRetry(100),
				asynq.Retention(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}

	for range servers {
		b, err := backend.Open(t.Context(), srv.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		c, err := locker.New(b, locker.Bare, locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		mux := asynq.NewServeMux()
		mux.Use(Once(c, time.Hour, func(task *asynq.Task) string {
			return task.Type() + "/" + string(task.Payload())
		}))
		mux.HandleFunc("charge", handler)
		s := asynq.NewServer(redis, asynq.Config{
			Concurrency: 4, IsFailure: IsFailure, LogLevel: asynq.FatalLevel,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration {
				return time.Millisecond
			},
			DelayedTaskCheckInterval: 50 * time.Millisecond,
			TaskCheckInterval:        20 * time.Millisecond,
		})
		if err := s.Start(mux); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Shutdown)
	}

	inspector := asynq.NewInspector(redis)
	defer inspector.Close()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		q, err := inspector.GetQueueInfo("default")
		if err != nil {
			t.Fatal(err)
		}
		if q.Completed == copies*orders {
			break
		}
		if q.Archived > 0 || time.Now().After(deadline) {
			t.Fatalf("%d completed, %d given up, %d to retry", q.Completed, q.Archived, q.Retry)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for order, n := range runs {
		if n != 2 {
			t.Errorf("order %s ran %d times: want once without success, and once with it", order, n)
		}
	}
	if len(runs) != orders || overlaps > 0 {
		t.Errorf("%d orders ran, and two runs of one overlapped %d times", len(runs), overlaps)
	}
}

func TestIsFailure(t *testing.T) {
	if IsFailure(&backend.HeldError{}) || !IsFailure(errors.New("boom")) {
		t.Error("only a lock that is held is none")
	}
}
