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

// A store that does not answer to a subscription keeps no caller for longer than its ctx or
// Config.Timeout, nor Close; and when it answers, the subscription is there for all, and there is
// one.
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
		for limit, want := range map[time.Duration]error{
			time.Second: context.DeadlineExceeded,
			time.Minute: backend.ErrUnavailable,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			began := time.Now()
			_, err := b.Watch(ctx, c)
			if took := time.Since(began); !errors.Is(err, want) ||
				took != min(limit, cfg.Timeout) ||
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

// Nothing is told of changes, and a look finds the record as the last look did: but in between a
// claim of this process was refused because of a hold, which is over. It is woken all the same.
//
// covers: W1, W2
func TestWakeThoughTheRecordLooksTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := recordtest.NewMemory()
		cfg := m.Config()
		cfg.Watch, cfg.Poll = nil, time.Second
		b, others := record.New(record.ByVersion(m), cfg), record.New(record.ByVersion(m), cfg)
		defer func() { _, _ = b.Close(), others.Close() }()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		claim := func() backend.Claim {
			return backend.Claim{
				Key: "k", Owner: backend.NewOwner(), TTL: time.Minute,
				NoneInFlight: true,
			}
		}
		wake, err := b.Watch(ctx, claim())
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			time.Sleep(3 * cfg.Poll) // it is looked at meanwhile, and free
			for len(wake) > 0 {
				<-wake
			}
			held := claim()
			if _, err := others.TryAcquire(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			if _, err := b.TryAcquire(t.Context(), claim()); !errors.Is(err, backend.ErrHeld) {
				t.Fatalf("TryAcquire beside a hold = %v", err)
			}
			time.Sleep(time.Millisecond) // so that nothing of the key is left by the release
			if _, err := others.Release(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * cfg.Poll)
			if len(wake) == 0 {
				t.Fatal("not woken, though the key is free again")
			}
		}
	})
}

// A subscription that the store refused is none: who watches next asks for one again.
//
// covers: W13
func TestSubscriptionAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := recordtest.NewMemory()
		cfg, refusals, refused := m.Config(), 2, errors.New("refused")
		cfg.Watch = func(ctx context.Context, changed func(string)) error {
			if refusals--; refusals >= 0 {
				return refused
			}
			return m.Watch(ctx, changed)
		}
		b := record.New(record.ByVersion(m), cfg)
		defer func() { _ = b.Close() }()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		held := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
		if _, err := b.TryAcquire(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := b.Watch(ctx, held); !errors.Is(err, refused) {
				t.Errorf("Watch without a subscription = %v, want why", err)
			}
		}
		wake, err := b.Watch(ctx, backend.Claim{Key: "k", Owner: backend.NewOwner()})
		if err != nil {
			t.Fatal(err)
		}
		others := record.New(record.ByVersion(m), m.Config()) // whom this client only hears of
		defer func() { _ = others.Close() }()
		if _, err := others.Release(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(wake) == 0 {
			t.Error("not told of a release")
		}
	})
}
