package locker_test

import (
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// TestLogNamesTheCaller: the log says where a lock was taken in the program, by whichever door.
func TestLogNamesTheCaller(t *testing.T) {
	type client = *locker.Client[struct{}]
	wait := func(ctx context.Context, _ struct{}) error {
		<-ctx.Done()
		return ctx.Err()
	}
	line := func() int {
		_, _, line, _ := runtime.Caller(1)
		return line
	}
	for name, lock := range map[string]func(ctx context.Context, l client) (int, error){
		"Lock": func(ctx context.Context, l client) (int, error) {
			_, err := l.Lock(ctx, "k")
			return line() - 1, err
		},
		"TryLock": func(ctx context.Context, l client) (int, error) {
			_, err := locker.Locker[struct{}](l).TryLock(ctx, "k")
			return line() - 1, err
		},
		"All": func(ctx context.Context, l client) (int, error) {
			_, err := locker.All(ctx, l, []string{"k"})
			return line() - 1, err
		},
		"All of several": func(ctx context.Context, l client) (int, error) {
			_, err := locker.All(ctx, l, []string{"k", "l"})
			return line() - 1, err
		},
		"Do": func(ctx context.Context, l client) (int, error) {
			_ = locker.Do(ctx, l, "k", wait)
			return line() - 1, nil
		},
		"Lead": func(ctx context.Context, l client) (int, error) {
			ctx, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
			defer cancel()
			_ = locker.Lead(ctx, l, "k", wait)
			return line() - 1, nil
		},
	} {
		out := &output{}
		cfg := locker.Config{
			MaxHold: time.Second, TTL: 2 * time.Second,
			Logger: slog.New(slog.NewTextHandler(out, nil)),
		}
		bubble(t, membackend.New(), cfg, func(t *testing.T, l client) {
			where, err := lock(t.Context(), l)
			if err != nil {
				t.Fatal(name, err)
			}
			time.Sleep(time.Minute)
			if s, want := out.String(), "site_test.go:"+strconv.Itoa(where); !strings.Contains(s,
				want) {
				t.Errorf("%s at %s, but the log says %s", name, want, s)
			}
		})
	}
}
