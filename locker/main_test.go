package locker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// errSilence is an answer that is none.
var errSilence = errors.New("connection reset by test")

// hooked is a backend whose verbs a test can replace. A nil hook forwards.
type hooked struct {
	backend.Backend
	acquire func(ctx context.Context, c backend.Claim) (backend.Grant, error)
	renew   func(ctx context.Context, c backend.Claim) error
	release func(ctx context.Context, c backend.Claim) error
	watch   func(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error)
	caps    *backend.Capabilities

	acquires, renews, releases, watches atomic.Int64
}

func hook() *hooked { return &hooked{Backend: membackend.New()} }

// plain is a backend that can do no more than exclusive locks.
func plain() *hooked {
	b := hook()
	b.caps = &backend.Capabilities{
		Fencing: true, Watch: true, Inspect: true,
		MinTTL: time.Millisecond,
	}
	return b
}

func (h *hooked) Capabilities() backend.Capabilities {
	if h.caps != nil {
		return *h.caps
	}
	return h.Backend.Capabilities()
}

func (h *hooked) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	h.acquires.Add(1)
	if h.acquire != nil {
		return h.acquire(ctx, c)
	}
	return h.Backend.TryAcquire(ctx, c)
}

func (h *hooked) Renew(ctx context.Context, c backend.Claim) error {
	h.renews.Add(1)
	if h.renew != nil {
		return h.renew(ctx, c)
	}
	return h.Backend.Renew(ctx, c)
}

func (h *hooked) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	h.releases.Add(1)
	if h.release != nil {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // a backend bounds each request
		defer cancel()
		return backend.Released{}, h.release(ctx, c)
	}
	return h.Backend.Release(ctx, c)
}

// ReleaseAll is not supported where releases are looked at one by one.
func (h *hooked) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if h.release != nil {
		return backend.Base{}.ReleaseAll(ctx, claims)
	}
	h.releases.Add(int64(len(claims)))
	return h.Backend.ReleaseAll(ctx, claims)
}

func (h *hooked) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	h.watches.Add(1)
	if h.watch != nil {
		return h.watch(ctx, c)
	}
	return h.Backend.Watch(ctx, c)
}

// bubble runs f in a synctest bubble, where an hour takes no time, with a Client on b.
func bubble(t *testing.T, b backend.Backend, cfg locker.Config,
	f func(t *testing.T, l *locker.Client[struct{}]),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l, err := locker.New(b, locker.Bare, cfg)
		if err != nil {
			t.Fatal(err)
		}
		f(t, l)
		ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
		defer cancel()
		if err := l.Shutdown(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func mustLock(t *testing.T, l locker.Locker[struct{}], key string,
	opts ...locker.Option,
) *locker.Guard[struct{}] {
	t.Helper()
	g, err := l.Lock(t.Context(), key, opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", key, err)
	}
	return g
}

// wantErr fails unless err wraps every one of targets.
func wantErr(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error %q does not wrap %q", err, target)
		}
	}
}

func wantHeld(t *testing.T, b backend.Backend, key string, held bool) {
	t.Helper()
	state, err := b.Inspect(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(state.Holders) == 1; got != held {
		t.Errorf("%q held in the store: %v, want %v", key, got, held)
	}
}
