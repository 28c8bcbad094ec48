package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// firstIsLate has the first attempt get no answer: it is on its way until land has it executed.
func firstIsLate(b *hooked) (land func(t *testing.T) error) {
	var first backend.Claim
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		if b.acquires.Load() == 1 {
			first = c
			return backend.Grant{}, errSilence
		}
		return b.Backend.TryAcquire(ctx, c)
	}
	return func(t *testing.T) error {
		_, err := b.Backend.TryAcquire(t.Context(), first)
		return err
	}
}

// wantNothing fails if somebody holds the key or waits for it.
func wantNothing(t *testing.T, b backend.Backend, key string) {
	t.Helper()
	state, err := b.Inspect(t.Context(), key)
	if err != nil || len(state.Holders)+len(state.Waiters) > 0 {
		t.Errorf("left of %q: holders %+v, waiters %+v, %v", key, state.Holders, state.Waiters, err)
	}
}

// An attempt has no answer, and a repeat of it is refused, as another holds. That says nothing of
// the first, which may yet land: whatever became of the claim, what ends it bars that one.
//
// covers: A2, A4, W7
func TestRefusalDoesNotAnswerTheAttemptBefore(t *testing.T) {
	limit := locker.WaitLimit(time.Second)
	for name, test := range map[string]struct {
		b     *hooked
		try   bool // TryLock; else a Lock that waits
		opts  []locker.Option
		frees bool // the key is freed while it waits, and it holds; else it gives up
	}{
		"TryLock":                   {b: hook(), try: true},
		"without a queue, gives up": {b: plain(), opts: []locker.Option{limit}},
		"in the queue, gives up":    {b: hook(), opts: []locker.Option{limit}},
		"in the queue, shared, gives up": {
			b:    hook(),
			opts: []locker.Option{locker.Shared(), limit},
		},
		"without a queue, holds later": {b: plain(), frees: true},
		"in the queue, holds later":    {b: hook(), frees: true},
		"in the queue, shared, holds later": {
			b: hook(), opts: []locker.Option{locker.Shared()},
			frees: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := test.b
			land := firstIsLate(b)
			bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
				held := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
				_, err := b.Backend.TryAcquire(t.Context(), held)
				storetest.Want(t, "TryAcquire of who holds", err, nil)
				if test.frees {
					time.AfterFunc(500*time.Millisecond, func() {
						if n := b.acquires.Load(); n < 2 {
							t.Errorf("%d attempts before the key is freed, want one "+
								"that is refused", n)
						}
						_, _ = b.Backend.Release(context.Background(), held)
					})
				}
				lock := l.Lock
				if test.try {
					lock = l.TryLock
				}
				g, err := lock(t.Context(), "k", test.opts...)
				if test.frees {
					storetest.Want(t, "Lock", err, nil)
					storetest.Want(t, "Unlock", g.Unlock(), nil)
				} else {
					wantErr(t, err, locker.ErrNotAcquired, backend.ErrHeld)
					synctest.Wait() // it is withdrawn
					storetest.Want(t, "Release", storetest.Release(t.Context(), b.Backend, held),
						nil)
				}
				if err := land(t); !errors.Is(err, backend.ErrLost) {
					t.Errorf("the first attempt, which landed last = %v, want ErrLost", err)
				}
				wantNothing(t, b, "k")
			})
		})
	}
}

// Whoever adopts a hold does not know whether each of the attempts for it was answered: one that
// lands late, while the adopter holds or after that, holds nothing.
//
// covers: A4, A10
func TestLateAttemptOfAHoldThatWasAdopted(t *testing.T) {
	for name, while := range map[string]bool{
		"while the adopter holds": true,
		"after its Unlock":        false,
	} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			land := firstIsLate(b)
			bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
				ticket := detached(t, detachable(t, l)) // by the second attempt
				other, err := locker.New(b, locker.Bare, locker.Config{})
				storetest.Want(t, "New", err, nil)
				g, err := other.Adopt(t.Context(), ticket)
				if err != nil {
					t.Fatalf("Adopt = %v", err)
				}
				lands := func() {
					if err := land(t); !errors.Is(err, backend.ErrLost) {
						t.Errorf("an attempt for what was adopted landed = %v, want ErrLost", err)
					}
				}
				if while {
					lands()
				}
				storetest.Want(t, "Unlock", g.Unlock(), nil)
				if !while {
					lands()
				}
				wantNothing(t, b, "k")
				storetest.Want(t, "Close", other.Close(), nil)
			})
		})
	}
}

// Who waits while one runs the job is told of that run, also if somebody who does not run it has
// held the key in between: what counts is who was in its way first. (The store is one that looks at
// the mark of a job only in the step that would grant.)
func TestOnceAwaitsWhoWasInItsWayFirst(t *testing.T) {
	for name, opts := range map[string][]locker.Option{
		"a lock": nil, "a try that is forgone": {locker.OncePer(time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
				if state, err := b.Inspect(ctx, c.Key); err != nil || len(state.Holders) > 0 {
					c.NotBefore, c.Awaited = 0, 0
				}
				return b.Backend.TryAcquire(ctx, c)
			}
			var wakes chan backend.Wake
			b.watch = func(context.Context, backend.Claim) (<-chan backend.Wake, error) {
				return wakes, nil
			}
			// It asks when it is woken.
			cfg := locker.Config{TTL: time.Hour, Wait: waiting.Config{Fallback: time.Hour}}
			bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
				wakes = make(chan backend.Wake)
				runs, ok := tryOnce(t, l, time.Second)
				if !ok {
					t.Fatal("early")
				}
				ran := make(chan bool)
				go func() { ran <- once(t, l, time.Second) }()
				time.Sleep(10 * time.Second) // the run takes longer than the time of the job
				storetest.Want(t, "Unlock of who ran it", runs.Unlock(), nil)
				between, err := l.TryLock(t.Context(), "job", opts...)
				storetest.Want(t, "TryLock of who gets in between", err, nil)
				asked := b.acquires.Load()
				wakes <- backend.Wake{}
				synctest.Wait()
				if n := b.acquires.Load() - asked; n != 1 {
					t.Errorf("%d attempts while another holds in between, want one that is refused",
						n)
				}
				storetest.Want(t, "Forgo", between.Forgo(), nil)
				wakes <- backend.Wake{}
				if <-ran {
					t.Error("the job ran again in a call that waited while it ran")
				}
			})
		})
	}
}

// A run that MaxHold has cut off is not noted, whatever the job makes of it: the next call runs the
// job.
//
// covers: B14
func TestOnceDoesNotNoteARunOfMaxHold(t *testing.T) {
	run := func(end func(ctx context.Context) error) func(*testing.T,
		*locker.Client[struct{}]) error {
		return func(t *testing.T, l *locker.Client[struct{}]) error {
			fn := func(ctx context.Context, _ struct{}) error {
				<-ctx.Done()
				return end(ctx)
			}
			ran, err := locker.Once(t.Context(), l, "job", time.Hour, fn,
				locker.MaxHold(time.Second))
			if !ran {
				t.Error("the job did not run")
			}
			return err
		}
	}
	for name, cutOff := range map[string]func(*testing.T, *locker.Client[struct{}]) error{
		"it succeeds":            run(func(context.Context) error { return nil }),
		"it fails with its ctx":  run(context.Context.Err),
		"it fails for the cause": run(context.Cause),
		"OncePer": func(t *testing.T, l *locker.Client[struct{}]) error {
			g, err := l.TryLock(t.Context(), "job", locker.OncePer(time.Hour),
				locker.MaxHold(time.Second))
			storetest.Want(t, "TryLock", err, nil)
			<-g.Context().Done()
			return g.Unlock()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			bubble(t, b, locker.Config{TTL: time.Minute},
				func(t *testing.T, l *locker.Client[struct{}]) {
					wantErr(t, cutOff(t, l), locker.ErrMaxHold)
					wantHeld(t, b, "job", false)
					if !once(t, l, time.Hour) {
						t.Error("a run that was cut off was noted: nobody runs the job in its time")
					}
				})
		})
	}
}
