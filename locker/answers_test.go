package locker_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// miscounting is a backend that gives an answer less than it was asked for, until right is set.
type miscounting struct {
	*hooked
	right            atomic.Bool
	beats, withdrawn atomic.Int64
}

func (m *miscounting) Heartbeat(ctx context.Context, claims []backend.Claim) ([]error, error) {
	answers, err := m.hooked.Heartbeat(ctx, claims)
	if err == nil && !m.right.Load() {
		m.beats.Add(1)
		answers = answers[1:]
	}
	return answers, err
}

func (m *miscounting) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	time.Sleep(10 * time.Millisecond) // others come together meanwhile
	return m.hooked.Release(ctx, c)
}

func (m *miscounting) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	answers, err := m.hooked.ReleaseAll(ctx, claims)
	if err == nil && !m.right.Load() && len(claims) > 0 {
		m.withdrawn.Add(1)
		answers = answers[1:]
	}
	return answers, err
}

// A backend that gives fewer answers than it was asked for has given none: nobody is taken for one
// that was answered, and releases are repeated.
//
// covers: A3, W4
func TestFewerAnswersThanQuestions(t *testing.T) {
	b := &miscounting{hooked: hook()}
	bubble(t, b, locker.Config{TTL: time.Minute, StoreTimeout: time.Hour},
		func(t *testing.T, l *locker.Client[struct{}]) {
			end := holder(t, b.hooked)
			ctx, cancel := context.WithCancel(t.Context())
			var readers sync.WaitGroup
			for range 100 {
				readers.Go(func() {
					_, err := l.Lock(ctx, "k", locker.Shared())
					wantErr(t, err, context.Canceled)
				})
			}
			time.Sleep(10 * time.Minute)
			if b.beats.Load() == 0 {
				t.Error("no heartbeat: this test shows nothing")
			}
			cancel()
			readers.Wait()
			time.Sleep(time.Second)
			if b.withdrawn.Load() == 0 {
				t.Error("no releases of several claims: this test shows nothing")
			}
			before := b.releases.Load()
			b.right.Store(true)
			time.Sleep(time.Minute)
			if again := b.releases.Load() - before; again < 2 {
				t.Errorf("%d releases without an answer were repeated", again)
			}
			end()
			if err := mustLock(t, l, "k").Unlock(); err != nil {
				t.Errorf("Unlock = %v", err)
			}
		})
}

// listing is a backend that ends each list with an error.
type listing struct{ *hooked }

func (b listing) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	return func(yield func(backend.Listed, error) bool) {
		for l, err := range b.hooked.List(ctx, prefix) {
			if !yield(l, err) {
				return
			}
		}
		yield(backend.Listed{}, errSilence)
	}
}

// An error of the store ends a list, and says what was listed.
//
// covers: A3
func TestListThatEndsWithoutAnAnswer(t *testing.T) {
	bubble(t, listing{hook()}, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		defer mustLock(t, l, "jobs/1").Unlock()
		var keys []string
		var last error
		for listed, err := range l.List(t.Context(), "jobs/") {
			if err != nil {
				last = err
				continue
			}
			keys = append(keys, listed.Key)
		}
		var named *locker.Error
		if !errors.Is(last, errSilence) || !errors.As(last, &named) ||
			!strings.Contains(last.Error(), "jobs/") || len(keys) != 1 {
			t.Errorf("listed %q, and then %v", keys, last)
		}
	})
}
