package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

// A hold ends while its Check is in flight, and the store's answer is a yes: that is to the lease,
// which may be the next one's by now. Check says why the hold is over, and of two guards one is
// good.
//
// covers: B8, C11
func TestCheckThatTheEndOfItsHoldOvertakes(t *testing.T) {
	for name, test := range map[string]struct {
		opts []locker.Option
		end  func(g *locker.Guard[struct{}], l *locker.Client[struct{}]) error
		next bool // another of this process waits, and gets the lease
		why  error
	}{
		"Unlock hands it on": {
			next: true, why: locker.ErrUnlocked,
			end: func(g *locker.Guard[struct{}], _ *locker.Client[struct{}]) error {
				return g.Unlock()
			},
		},
		"Unlock releases it": {
			why: locker.ErrUnlocked,
			end: func(g *locker.Guard[struct{}], _ *locker.Client[struct{}]) error {
				return g.Unlock()
			},
		},
		"MaxHold": {
			opts: []locker.Option{locker.MaxHold(time.Second)}, why: locker.ErrMaxHold,
			end: func(g *locker.Guard[struct{}], _ *locker.Client[struct{}]) error {
				<-g.Context().Done()
				return nil
			},
		},
		"Close": {
			why: locker.ErrClosed,
			end: func(g *locker.Guard[struct{}], l *locker.Client[struct{}]) error {
				go l.Close() // the bubble closes it as well
				<-g.Context().Done()
				return nil
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			var answer chan struct{}
			b.renew = func(ctx context.Context, c backend.Claim) error {
				select { // an answer that was on its way comes though the request is withdrawn
				case <-answer:
				case <-ctx.Done():
				}
				return b.Backend.Renew(context.WithoutCancel(ctx), c)
			}
			bubble(t, b, locker.Config{TTL: time.Minute},
				func(t *testing.T, l *locker.Client[struct{}]) {
					answer = make(chan struct{})
					g := mustLock(t, l, "k", test.opts...)
					next := make(chan *locker.Guard[struct{}], 1)
					if test.next {
						go func() { next <- mustLock(t, l, "k") }()
					}
					checked := make(chan error, 1)
					go func() { checked <- g.Check(t.Context()) }()
					synctest.Wait()
					if n := b.renews.Load(); n != 1 {
						t.Fatalf("%d requests in flight, want that of Check", n)
					}
					storetest.Want(t, "the end of the hold", test.end(g, l), nil)
					close(answer)
					err := <-checked
					if err == nil {
						t.Errorf("Check of a hold that is over passes, want %v", test.why)
					} else {
						wantErr(t, err, test.why)
					}
					if test.next {
						g := <-next
						_, err := g.Value()
						storetest.Want(t, "Value of the next one", err, nil)
						if n := b.acquires.Load(); n != 1 {
							t.Errorf("%d attempts, want one: the lease is handed on", n)
						}
						storetest.Want(t, "Check of the next one", g.Check(t.Context()), nil)
						storetest.Want(t, "Unlock of the next one", g.Unlock(), nil)
					}
					_ = g.Unlock()
					wantNothing(t, b, "k")
				})
		})
	}
}

// The only one of a process that waits is failed, while its own time goes on: its Lock returns when
// its place is out of the store's queue, so that a process which ends then leaves nothing in
// anybody's way.
//
// covers: W7, W8, X11
func TestLockThatIsFailedReturnsWhenItsClaimIsWithdrawn(t *testing.T) {
	// The withdrawal, which is less than a failing Lock waits for.
	const takes = 50 * time.Millisecond
	for name, test := range map[string]struct {
		opts []locker.Option
		// to each attempt after the first, which is told that it is the next
		answer func(held error) error
		after  time.Duration // Lock is failed
		close  bool          // by Close
		why    error
	}{
		"it would wait too long": {
			opts: []locker.Option{locker.FailFast()}, why: locker.ErrWouldTimeout,
			answer: func(error) error { return &backend.HeldError{Position: 2, Token: 2} },
		},
		"the store refuses": {why: backend.ErrDenied, answer: func(error) error {
			return backend.ErrDenied
		}},
		"the store is silent": {
			after: 5 * time.Second, why: errSilence, answer: func(error) error {
				return errSilence
			},
		},
		"Close": {close: true, why: locker.ErrClosed, answer: func(held error) error {
			return held
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			cfg := locker.Config{TTL: time.Minute, StoreTimeout: 5 * time.Second}
			bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
				holdFor(t, l, 10*time.Second) // which is what the next is told to wait for
				held := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
				_, err := b.Backend.TryAcquire(t.Context(), held)
				storetest.Want(t, "TryAcquire of who holds", err, nil)
				asked := b.acquires.Load()
				b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
					g, err := b.Backend.TryAcquire(ctx, c)
					if b.acquires.Load() > asked+1 && err != nil {
						err = test.answer(err)
					}
					return g, err
				}
				b.release = func(ctx context.Context, c backend.Claim) error {
					time.Sleep(takes)
					return storetest.Release(ctx, b.Backend, c)
				}
				began, failed := time.Now(), make(chan error, 1)
				go func() {
					_, err := l.Lock(t.Context(), "k",
						append(test.opts, locker.WaitLimit(15*time.Second))...)
					if took := time.Since(began); took != test.after+takes {
						t.Errorf("Lock returned after %v, want %v, with the end of the withdrawal",
							took, test.after+takes)
					}
					if state, _ := b.Inspect(t.Context(), "k"); len(state.Waiters) > 0 {
						t.Errorf("Lock has failed, and its place is in the queue: %+v",
							state.Waiters)
					}
					failed <- err
				}()
				if test.close {
					synctest.Wait()
					if state, _ := b.Inspect(t.Context(), "k"); len(state.Waiters) != 1 {
						t.Fatalf("%d wait, want one", len(state.Waiters))
					}
					storetest.Want(t, "Close", l.Close(), nil)
				}
				wantErr(t, <-failed, locker.ErrNotAcquired, test.why)
				if n := b.acquires.Load() - asked; n < 2 && !test.close {
					t.Errorf("%d attempts, want one that leaves a place, and those that fail", n)
				}
				storetest.Want(t, "Release of who holds",
					storetest.Release(t.Context(), b.Backend, held), nil)
				wantNothing(t, b, "k")
			})
		})
	}
}
