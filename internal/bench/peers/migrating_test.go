package peers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/redis/rueidis/rueidislock"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// What docs/migrating.md shows of other libraries and of holdfast beside them stands here, so that
// it is compiled against them; internal/repo compares the page with it. Those of other libraries
// are not run.
var _ = []any{redsyncs, redislocks, rueidislocks, concurrencies}

func work(context.Context) error { return nil }

func redsyncs(ctx context.Context, rs *redsync.Redsync) error {
	mutex := rs.NewMutex("order-7", redsync.WithExpiry(30*time.Second))
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer mutex.UnlockContext(ctx)
	return work(ctx)
}

func redislocks(ctx context.Context, c *redislock.Client) error {
	lock, err := c.Obtain(ctx, "order-7", 30*time.Second, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
	})
	if err != nil {
		return err
	}
	defer lock.Release(ctx)
	return work(ctx)
}

func rueidislocks(ctx context.Context, l rueidislock.Locker) error {
	ctx, cancel, err := l.WithContext(ctx, "order-7")
	if err != nil {
		return err
	}
	defer cancel()
	return work(ctx)
}

func concurrencies(ctx context.Context, s *concurrency.Session) error {
	m := concurrency.NewMutex(s, "order-7")
	if err := m.Lock(ctx); err != nil {
		return err
	}
	defer m.Unlock(ctx)
	return work(ctx)
}

// The holdfast of each, which is the same.
func TestMigrated(t *testing.T) {
	ctx, b := t.Context(), membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := func() error {
		err := locker.Do(ctx, l, "order-7", func(ctx context.Context, _ struct{}) error {
			return work(ctx)
		})
		switch {
		case errors.Is(err, locker.ErrNotAcquired):
			fmt.Println("nothing was done:", err)
		case errors.Is(err, locker.ErrLost):
			fmt.Println("it ran, but not all of it under the lock:", err)
		}
		return err
	}(); err != nil {
		t.Error(err)
	}
	if err := func() error {
		g, err := l.Lock(ctx, "order-7")
		if err != nil {
			return err
		}
		defer g.Unlock()
		return work(g.Context())
	}(); err != nil {
		t.Error(err)
	}
}

// The deploy in between: of three releases, each excludes the one before, if the second takes both
// locks.
func TestBothLocks(t *testing.T) {
	ctx, old, fresh := t.Context(), membackend.New(), membackend.New()
	defer old.Close()
	defer fresh.Close()
	was, err1 := locker.New(old, locker.Bare, locker.Config{})
	now, err2 := locker.New(fresh, locker.Bare, locker.Config{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	defer was.Close()
	defer now.Close()
	ran := false
	work := func(context.Context) error {
		ran = true
		// Of the release before, and of the one after.
		for _, l := range []*locker.Client[struct{}]{was, now} {
			if _, err := l.TryLock(t.Context(), "order-7"); !errors.Is(err, locker.ErrNotAcquired) {
				t.Errorf("TryLock = %v", err)
			}
		}
		return nil
	}
	err := locker.Do(ctx, was, "order-7", func(ctx context.Context, _ struct{}) error {
		return locker.Do(ctx, now, "order-7", func(ctx context.Context, _ struct{}) error {
			return work(ctx)
		})
	})
	if err != nil || !ran {
		t.Error(err, ran)
	}
}
