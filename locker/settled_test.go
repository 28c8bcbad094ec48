package locker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// A grant whose answer took more than half of the lease is in the store, and nobody believes in it.
// A call that fails after it leaves nothing held, also one that has no place in a queue to give up.
//
// covers: A7, W7
func TestGrantThatComesTooLateIsPutBack(t *testing.T) {
	poll := locker.WaitMode(waiting.Poll)
	for name, test := range map[string]struct {
		b    *hooked
		try  bool // TryLock, which asks twice; else a Lock, which gives up after the first answer
		ctx  bool // as its caller does; else as the store was silent for too long
		opts []locker.Option
	}{
		"TryLock":                 {b: hook(), try: true},
		"TryLock without a queue": {b: plain(), try: true},
		"TryLock, shared": {
			b: hook(), try: true,
			opts: []locker.Option{locker.Shared()},
		},
		"without a queue, cancelled": {b: plain(), ctx: true},
		"by asking, cancelled":       {b: hook(), ctx: true, opts: []locker.Option{poll}},
		"by asking, shared, cancelled": {
			b: hook(), ctx: true,
			opts: []locker.Option{poll, locker.Shared()},
		},
		"by asking, shared, given up": {
			b:    hook(),
			opts: []locker.Option{poll, locker.Shared()},
		},
		"by asking, one permit, cancelled": {
			b: hook(), ctx: true,
			opts: []locker.Option{poll, locker.Permit(2)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := test.b
			granted := int64(0)
			b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
				g, err := b.Backend.TryAcquire(ctx, c)
				if err == nil {
					granted++
				}
				time.Sleep(6 * time.Second) // its answer is on the way
				return g, err
			}
			leave := func() {}
			cfg := locker.Config{
				TTL: 10 * time.Second,
				Observer: calls{end: map[string]func(error){locker.OpAttempt: func(error) {
					leave()
				}}},
			}
			if !test.ctx {
				cfg.StoreTimeout = 5 * time.Second
			}
			bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				lock, asks := l.Lock, int64(1)
				if test.try {
					lock, asks = l.TryLock, 2
				}
				if test.ctx {
					leave = cancel
				}
				_, err := lock(ctx, "k", test.opts...)
				wantErr(t, err, locker.ErrNotAcquired)
				if err == nil || !strings.Contains(err.Error(), "half the TTL") {
					t.Errorf("error does not say what is wrong: %v", err)
				}
				if granted != asks || b.acquires.Load() != asks {
					t.Errorf("%d grants of %d attempts, want %d that come too late", granted,
						b.acquires.Load(), asks)
				}
				wantNothing(t, b, "k")
				if n := b.releases.Load(); n != 1 {
					t.Errorf("%d releases, want the withdrawal", n)
				}
			})
		})
	}
}

// A job runs from when its call has the lock. What it waited before, for somebody who does not run
// the job, is no part of its time: the next call within that does not run it again.
func TestOnceDoesNotCountTheWaitBeforeIt(t *testing.T) {
	const every = 30 * time.Minute
	for name, held := range map[string]func(t *testing.T, b *hooked, l *locker.Client[struct{}]){
		"a hold that is unlocked": func(t *testing.T, _ *hooked, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "job")
			time.AfterFunc(time.Hour, func() { _ = g.Unlock() })
		},
		"a run that crashes": func(t *testing.T, b *hooked, _ *locker.Client[struct{}]) {
			c := backend.Claim{
				Key: "job", Owner: backend.NewOwner(), TTL: time.Hour,
				NotBefore: every,
			}
			_, err := b.Backend.TryAcquire(t.Context(), c)
			storetest.Want(t, "TryAcquire of who crashes", err, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
				called := time.Now()
				held(t, b, l)
				var began time.Time
				run := func(context.Context, struct{}) error {
					began = time.Now()
					time.Sleep(time.Minute)
					return nil
				}
				ran, err := locker.Once(t.Context(), l, "job", every, run)
				if !ran || err != nil || began.Sub(called) < time.Hour {
					t.Fatalf("Once = %v, %v, began %v after the call, want an hour", ran, err,
						began.Sub(called))
				}
				for _, after := range []time.Duration{time.Minute, every / 2, every - time.Second} {
					time.Sleep(time.Until(began.Add(after)))
					if once(t, l, every) {
						t.Fatalf("the job ran again %v after it began, want once in %v", after,
							every)
					}
				}
				time.Sleep(time.Until(began.Add(every + time.Second)))
				if !once(t, l, every) {
					t.Error("the job did not run when its time was over")
				}
			})
		})
	}
}
