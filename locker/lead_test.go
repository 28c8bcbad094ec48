package locker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

func TestLeadStepsDownWithCtx(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		why := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Hour, func() { cancel(why) })
		err := locker.Lead(ctx, l, "leader", func(ctx context.Context, _ struct{}) error {
			<-ctx.Done()
			return nil
		})
		wantErr(t, err, context.Canceled, why)
		wantHeld(t, b, "leader", false)
	})
}

func TestLeadCampaignsAgainAfterALoss(t *testing.T) {
	b := hook()
	b.renew = func(ctx context.Context, c backend.Claim) error {
		if b.renews.Load()%2 == 0 {
			return backend.ErrLost
		}
		return b.Backend.Renew(ctx, c)
	}
	bubble(t, b, locker.Config{TTL: 3 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			terms := 0
			err := locker.Lead(t.Context(), l, "leader",
				func(ctx context.Context, _ struct{}) error {
					if terms++; terms == 5 {
						return nil // resigns
					}
					<-ctx.Done()
					wantErr(t, context.Cause(ctx), locker.ErrLost)
					return ctx.Err()
				})
			if err != nil || terms != 5 {
				t.Errorf("%d terms, %v", terms, err)
			}
		})
}

// What fn returns after a loss is not dropped: the last that says something is told when Lead ends.
func TestLeadTellsOfATermThatWasLost(t *testing.T) {
	first, second, last := errors.New("first"), errors.New("second"), errors.New("last")
	for name, test := range map[string]struct {
		end  func(leave context.CancelCauseFunc) error
		want []error
	}{
		"fn fails":   {func(context.CancelCauseFunc) error { return last }, []error{last, second}},
		"it resigns": {func(context.CancelCauseFunc) error { return nil }, nil},
		"ctx ends": {func(leave context.CancelCauseFunc) error {
			leave(last)
			return nil
		}, []error{context.Canceled, last, second}},
	} {
		b := hook()
		bubble(t, b, locker.Config{TTL: 3 * time.Second},
			func(t *testing.T, l *locker.Client[struct{}]) {
				b.renew = func(context.Context, backend.Claim) error { return backend.ErrLost }
				ctx, leave := context.WithCancelCause(t.Context())
				defer leave(nil)
				term := 0
				err := locker.Lead(ctx, l, "leader", func(ctx context.Context, _ struct{}) error {
					if term++; term == 5 {
						return test.end(leave)
					}
					<-ctx.Done()
					return [...]error{first, second, ctx.Err(), context.Cause(ctx)}[term-1]
				})
				if test.want == nil && err != nil || errors.Is(err, first) ||
					errors.Is(err, locker.ErrLost) {
					t.Errorf("%s: Lead = %v", name, err)
				}
				if test.want != nil {
					wantErr(t, err, test.want...)
				}
			})
	}
}

func TestLeadEndsWithFn(t *testing.T) {
	b := hook()
	mine := errors.New("mine")
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		err := locker.Lead(t.Context(), l, "leader", func(context.Context, struct{}) error {
			return mine
		})
		wantErr(t, err, mine)
		wantHeld(t, b, "leader", false)
	})
}

// Under a guard of its key nobody can ever lead: a campaign would last until ctx ends.
//
// covers: G3
func TestLeadUnderAGuardOfItsKey(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "leader")
		ctx, cancel := context.WithTimeout(g.Context(), time.Hour)
		defer cancel()
		err := locker.Lead(ctx, l, "leader", func(context.Context, struct{}) error {
			t.Error("it leads beside the guard")
			return nil
		})
		wantErr(t, err, locker.ErrWouldDeadlock)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Error("it campaigned until its ctx ended")
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

func TestLeadOutlivesAnOutageButNoRefusal(t *testing.T) {
	b := hook()
	var answer atomic.Pointer[error]
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		if err := answer.Load(); err != nil {
			return backend.Grant{}, *err
		}
		return b.Backend.TryAcquire(ctx, c)
	}
	cfg := locker.Config{StoreTimeout: time.Second}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		answer.Store(new(backend.ErrUnavailable))
		time.AfterFunc(time.Hour, func() { answer.Store(nil) })
		start := time.Now()
		err := locker.Lead(t.Context(), l, "leader", func(context.Context, struct{}) error {
			return nil
		})
		if d := time.Since(start); err != nil || d < time.Hour || d > time.Hour+time.Minute {
			t.Errorf("led after %v of an outage of 1h: %v", d, err)
		}
		answer.Store(new(backend.ErrDenied))
		err = locker.Lead(t.Context(), l, "leader", func(context.Context, struct{}) error {
			return nil
		})
		wantErr(t, err, backend.ErrDenied)
	})
}

func TestOneLeaderAtATime(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var leading, terms atomic.Int32
		done := make(chan struct{})
		for range 5 {
			go func() {
				defer func() { done <- struct{}{} }()
				for ctx.Err() == nil {
					_ = locker.Lead(ctx, l, "leader", func(ctx context.Context, _ struct{}) error {
						if leading.Add(1) > 1 {
							t.Error("two leaders")
						}
						defer leading.Add(-1)
						terms.Add(1)
						time.Sleep(time.Second)
						return nil
					})
				}
			}()
		}
		for range 5 {
			<-done
		}
		if terms.Load() < 50 {
			t.Errorf("%d terms in a minute", terms.Load())
		}
	})
}

// What fn returns may wrap the loss of another lock, which it has lost under this one. That is fn's
// error, and no loss of the term: Lead ends with it.
func TestLeadEndsWithTheLossOfAnotherLock(t *testing.T) {
	for _, of := range []error{locker.ErrLost, locker.ErrMaxHold} {
		bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			mine, terms := &locker.Error{Op: "unlock", Key: "nested", Err: of}, 0
			err := locker.Lead(ctx, l, "leader", func(context.Context, struct{}) error {
				if terms++; terms > 1 {
					cancel() // else it campaigns for ever
				}
				return mine
			})
			if !errors.Is(err, error(mine)) || errors.Is(err, context.Canceled) || terms != 1 {
				t.Errorf("after %d terms Lead = %v, want what fn returned in the first", terms, err)
			}
		})
	}
}
