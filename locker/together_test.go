package locker_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

// silentAll is a store that does not answer a request for many keys before its ctx ends. It
// executes the request when it comes; or not, and then it may land later.
type silentAll struct {
	*hooked
	executes bool
	sent     []backend.Claim
}

func (s *silentAll) TryAcquireAll(ctx context.Context,
	claims []backend.Claim,
) ([]backend.Grant, error) {
	s.sent = append(s.sent, claims...)
	for _, c := range claims {
		if !s.executes {
			break
		}
		if _, err := s.Backend.TryAcquire(ctx, c); err != nil {
			return nil, err
		}
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// The time of an All is over while its request for many keys is on its way, and the store's client
// says no more than that. So each attempt in it is withdrawn, whether the store has executed it or
// does so later.
//
// covers: A2, A4
func TestAllEndsWithoutAnAnswerToItsRequest(t *testing.T) {
	for name, test := range map[string]struct {
		limit    bool // the wait limit ends it; else the caller goes
		executes bool // the store executes the request at once; else after All has returned
	}{
		"the caller goes, executed":    {executes: true},
		"the caller goes, lands later": {},
		"the limit, executed":          {limit: true, executes: true},
		"the limit, lands later":       {limit: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := &silentAll{hooked: remote(10 * time.Millisecond), executes: test.executes}
			bubble(t, b, locker.Config{TTL: time.Hour},
				func(t *testing.T, l *locker.Client[struct{}]) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					var opts []locker.Option
					why := context.Canceled
					if test.limit {
						opts, why = append(opts, locker.WaitLimit(time.Second)),
							context.DeadlineExceeded
					} else {
						time.AfterFunc(time.Second, cancel)
					}
					_, err := locker.All(ctx, l, keysOf(5), opts...)
					wantErr(t, err, locker.ErrNotAcquired, why)
					if len(b.sent) != 5 {
						t.Fatalf("%d attempts in requests for many keys, want 5 in one",
							len(b.sent))
					}
					time.Sleep(time.Second) // what goes on behind the caller is done
					for _, c := range b.sent {
						if !test.executes {
							_, err := b.Backend.TryAcquire(t.Context(), c)
							if !errors.Is(err, backend.ErrLost) {
								t.Errorf("the attempt of %q, which landed last = %v, want ErrLost",
									c.Key, err)
							}
						}
						wantNothing(t, b, c.Key)
					}
				})
		})
	}
}

// Two holds that were together are over, and what they protect is closed slowly, one before the
// other. The next holder, who has the key by then, opens nothing until both are closed, in
// whichever order.
func TestScopedNextWaitsForAllThatIsOpen(t *testing.T) {
	for name, as := range map[string]struct {
		last locker.Option
		next []locker.Option
	}{
		"a writer after readers": {locker.Shared(), nil},
		"a permit after permits": {locker.Permit(2), []locker.Option{locker.Permit(2)}},
		"an owner after re-entry": {
			locker.Reentrant("me"),
			[]locker.Option{locker.Reentrant("you")},
		},
		"a reader after re-entry": {locker.Reentrant("me"), []locker.Option{locker.Shared()}},
		"a reader after permits":  {locker.Permit(2), []locker.Option{locker.Shared()}},
	} {
		for order, firstClosed := range map[string]int{
			"the first first":  1,
			"the second first": 2,
		} {
			t.Run(name+", "+order, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var open, opened atomic.Int64
					may := map[int]chan struct{}{1: make(chan struct{}), 2: make(chan struct{})}
					b := hook()
					l, err := locker.New(b, locker.Scoped(
						func(context.Context, locker.Hold) (int, error) {
							open.Add(1)
							return int(opened.Add(1)), nil
						},
						func(n int) error {
							if n <= 2 {
								<-may[n]
							}
							open.Add(-1)
							return nil
						},
					), locker.Config{TTL: time.Minute, Logger: slog.New(slog.DiscardHandler)})
					storetest.Want(t, "New", err, nil)
					want := func(when string, nOpen, nOpened int64) {
						t.Helper()
						synctest.Wait()
						if open.Load() != nOpen || opened.Load() != nOpened {
							t.Errorf("%s: %d open of %d that were opened, want %d of %d",
								when, open.Load(), opened.Load(), nOpen, nOpened)
						}
					}
					var last []*locker.Guard[int]
					for range 2 {
						last = append(last, mustScope(t, l, "k", as.last,
							locker.MaxHold(time.Second)))
					}
					time.Sleep(10 * time.Second)
					locked, asked := make(chan *locker.Guard[int]), time.Now()
					go func() { locked <- mustScope(t, l, "k", as.next...) }()
					// The leases are long over, and the key is the next one's.
					time.Sleep(5 * time.Minute)
					state, err := b.Inspect(t.Context(), "k")
					if err != nil || len(state.Holders) != 1 ||
						state.Holders[0].Meta.Since.Before(asked) {
						t.Errorf("the key is not the next one's: %+v, %v", state, err)
					}
					want("both are being closed", 2, 2)
					close(may[firstClosed])
					want("one is closed", 1, 2)
					close(may[3-firstClosed])
					next := <-locked
					want("both are closed", 1, 3)
					storetest.Want(t, "Unlock", next.Unlock(), nil)
					for _, g := range last {
						wantErr(t, g.Unlock(), locker.ErrMaxHold)
					}
					want("the end", 0, 3)
					storetest.Want(t, "Close", l.Close(), nil)
				})
			})
		}
	}
}
