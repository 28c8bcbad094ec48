package record_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/backend/record/recordtest"
)

// A store that does not answer to a subscription keeps no caller for longer than its ctx or Config.Timeout, nor Close; and when it
// answers, the subscription is there for all, and there is one.
//
// covers: W13, E2
func TestSubscriptionWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := recordtest.NewMemory()
		cfg, silent, asked := m.Config(), make(chan struct{}), 0
		watch := cfg.Watch
		cfg.Timeout = 2 * time.Second
		cfg.Watch = func(ctx context.Context, changed func(string)) error {
			asked++
			select {
			case <-silent:
				return watch(ctx, changed)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		b := record.New(record.ByVersion(m), cfg)
		c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Minute}
		for limit, want := range map[time.Duration]error{time.Second: context.DeadlineExceeded, time.Minute: backend.ErrUnavailable} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			began := time.Now()
			_, err := b.Watch(ctx, c)
			if took := time.Since(began); !errors.Is(err, want) || took != min(limit, cfg.Timeout) ||
				limit > cfg.Timeout && errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("with %v: %v after %v, want %v", limit, err, took, want)
			}
			cancel()
		}
		close(silent)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := b.Watch(ctx, c); err != nil || asked != 1 {
			t.Errorf("when the store answers: %v, it was asked %d times", err, asked)
		}
		cancel()
		if err := b.Close(); err != nil {
			t.Error(err)
		}

		silent = make(chan struct{})
		b = record.New(record.ByVersion(m), cfg)
		done := make(chan error)
		go func() { _, err := b.Watch(t.Context(), c); done <- err }()
		synctest.Wait()
		began := time.Now()
		if err := b.Close(); err != nil || time.Since(began) > cfg.Timeout {
			t.Errorf("Close = %v after %v", err, time.Since(began))
		}
		if err := <-done; !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("a watch that Close has ended: %v", err)
		}
	})
}
