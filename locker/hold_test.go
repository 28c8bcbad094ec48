package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

// covers: B10
func TestHoldIsRenewedForAnHour(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{TTL: 30 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			time.Sleep(time.Hour)
			if _, err := g.Value(); err != nil {
				t.Errorf("after an hour: %v", err)
			}
			if n := b.renews.Load(); n < 320 || n > 400 {
				t.Errorf("%d renewals in an hour at a TTL of 30s, want about 360", n)
			}
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
			wantHeld(t, b, "k", false)
		})
}

// covers: A6, Q15
func TestDeadlineCountsFromBeforeTheRequest(t *testing.T) {
	b := hook()
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		// The reply is slow; the store's lease began at the latest when it was sent.
		time.Sleep(4 * time.Second)
		return b.Backend.TryAcquire(ctx, c)
	}
	bubble(t, b, locker.Config{TTL: 10 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			asked := time.Now()
			g := mustLock(t, l, "k")
			defer g.Unlock()
			// 1 % drift, 3 ms granularity.
			want := asked.Add(10*time.Second - 100*time.Millisecond - 3*time.Millisecond)
			if !g.Until().Equal(want) {
				t.Errorf("deadline is %v after the attempt, want %v", g.Until().Sub(asked),
					want.Sub(asked))
			}
		})
}

func TestRenewalMovesDeadlineFromItsOwnSending(t *testing.T) {
	b := hook()
	var last atomic.Pointer[time.Time]
	b.renew = func(ctx context.Context, c backend.Claim) error {
		last.Store(new(time.Now()))
		time.Sleep(time.Second)
		return b.Backend.Renew(ctx, c)
	}
	bubble(t, b, locker.Config{TTL: 10 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			defer g.Unlock()
			time.Sleep(5 * time.Second)
			sent := *last.Load()
			if want := sent.Add(9897 * time.Millisecond); !g.Until().Equal(want) {
				t.Errorf("deadline is %v after the renewal was sent, want 9.897s",
					g.Until().Sub(sent))
			}
		})
}

// A holder whose store has gone silent is told before the lease can have ended, without waiting for
// the silence to end.
// covers: B1, X4
func TestLostAtDeadlineWithoutWaitingForIO(t *testing.T) {
	b := hook()
	silence := make(chan struct{})
	// Deaf to ctx, too.
	b.renew = func(context.Context, backend.Claim) error { <-silence; return errSilence }
	bubble(t, b, locker.Config{TTL: 10 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			silence = make(chan struct{}) // of this bubble
			start := time.Now()
			g := mustLock(t, l, "k")
			<-g.Lost()
			if got := time.Since(start); got != 9897*time.Millisecond {
				t.Errorf("lost after %v, want 9.897s", got)
			}
			wantHeld(t, b, "k", true) // the store's lease still runs: nobody else can have it yet
			wantErr(t, context.Cause(g.Context()), locker.ErrLost)
			_, err := g.Value()
			wantErr(t, err, locker.ErrLost)
			close(silence)
			wantErr(t, g.Unlock(), locker.ErrLost)
		})
}

// One failed renewal, whichever it is, must not end the renewing (Redisson#2515, #3194, #3712).
// covers: B2, B7
func TestRenewalSurvivesAnyUnansweredOne(t *testing.T) {
	for k := int64(1); k <= 12; k++ {
		b := hook()
		b.renew = func(ctx context.Context, c backend.Claim) error {
			if b.renews.Load() == k {
				return errSilence
			}
			return b.Backend.Renew(ctx, c)
		}
		bubble(t, b, locker.Config{TTL: 3 * time.Second},
			func(t *testing.T, l *locker.Client[struct{}]) {
				g := mustLock(t, l, "k")
				time.Sleep(time.Minute)
				if err := g.Unlock(); err != nil {
					t.Errorf("renewal %d unanswered: %v", k, err)
				}
			})
	}
}

// covers: B7
func TestUnansweredRenewalsAreRepeatedUntilDeadline(t *testing.T) {
	b := hook()
	b.renew = func(ctx context.Context, c backend.Claim) error { return errSilence }
	bubble(t, b, locker.Config{TTL: 10 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			<-g.Lost()
			if n := b.renews.Load(); n < 15 || n > 300 {
				t.Errorf("%d renewals tried between a third of the TTL and the deadline", n)
			}
			before := b.renews.Load()
			time.Sleep(time.Minute)
			if b.renews.Load() != before {
				t.Error("renewals went on after the loss")
			}
			wantErr(t, g.Unlock(), locker.ErrLost)
		})
}

// covers: B8
func TestLateYesDoesNotRevive(t *testing.T) {
	b := hook()
	late := make(chan struct{})
	b.renew = func(_ context.Context, c backend.Claim) error { <-late; return nil }
	bubble(t, b, locker.Config{TTL: 10 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			late = make(chan struct{})
			g := mustLock(t, l, "k")
			<-g.Lost()
			close(late)
			synctest.Wait()
			_, err := g.Value()
			wantErr(t, err, locker.ErrLost)
			if g.Until().After(time.Now()) {
				t.Error("the deadline of a lost hold moved into the future")
			}
			wantErr(t, g.Unlock(), locker.ErrLost)
		})
}

// covers: R8, W3
func TestDefiniteLossIsImmediate(t *testing.T) {
	for _, answer := range []error{backend.ErrLost, backend.ErrForeign} {
		b := hook()
		b.renew = func(context.Context, backend.Claim) error { return answer }
		bubble(t, b, locker.Config{TTL: 30 * time.Second},
			func(t *testing.T, l *locker.Client[struct{}]) {
				start := time.Now()
				g := mustLock(t, l, "k")
				<-g.Context().Done()
				if d := time.Since(start); d > 11*time.Second {
					t.Errorf("lost %v after the grant, want right after the first renewal", d)
				}
				wantErr(t, context.Cause(g.Context()), locker.ErrLost, answer)
				select {
				case <-g.Lost(): // also if asked for only after the loss
				default:
					t.Error("Lost is not closed")
				}
				wantErr(t, g.Unlock(), locker.ErrLost, answer)
			})
	}
}

func TestUnlockIsNoLoss(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		lost, ctx := g.Lost(), g.Context()
		if err := g.Unlock(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		select {
		case <-lost:
			t.Error("Lost was closed by Unlock")
		default:
		}
		wantErr(t, context.Cause(ctx), locker.ErrUnlocked)
		_, err := g.Value()
		wantErr(t, err, locker.ErrUnlocked)
		wantErr(t, g.Check(t.Context()), locker.ErrUnlocked)
	})
}

// covers: B14, I11
func TestMaxHoldEndsRenewal(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{TTL: 10 * time.Second, MaxHold: time.Minute},
		func(t *testing.T, l *locker.Client[struct{}]) {
			start := time.Now()
			g := mustLock(t, l, "k")
			<-g.Context().Done()
			if d := time.Since(start); d != time.Minute {
				t.Errorf("ended after %v, want 1m", d)
			}
			wantErr(t, context.Cause(g.Context()), locker.ErrMaxHold)
			if errors.Is(context.Cause(g.Context()), locker.ErrLost) {
				t.Error("MaxHold is reported as a loss")
			}
			_, err := g.Value()
			wantErr(t, err, locker.ErrMaxHold)
			wantHeld(t, b, "k", true) // work may still be finishing
			time.Sleep(10 * time.Second)
			wantHeld(t, b, "k", false)
			wantErr(t, g.Unlock(), locker.ErrMaxHold)
		})
}

// A MaxHold that is longer than any time there will be, such as of who writes the greatest number
// for no limit, is none: the lease is renewed, and a loss is told at the deadline.
//
// covers: B1, B10, B14
func TestMaxHoldBeyondAllTime(t *testing.T) {
	for name, of := range map[string]struct {
		max  time.Duration
		opts []locker.Option
	}{
		"the client's":            {math.MaxInt64, nil},
		"the call's":              {0, []locker.Option{locker.MaxHold(math.MaxInt64)}},
		"it ends just beyond it":  {math.MaxInt64 - time.Hour + 1, nil},
		"it ends just before it":  {math.MaxInt64 - time.Hour - time.Minute, nil},
		"half as long as all":     {math.MaxInt64 / 2, nil},
		"the call's, with others": {time.Second, []locker.Option{locker.MaxHold(math.MaxInt64)}},
	} {
		t.Run(name, func(t *testing.T) {
			b, renew, _ := switchable()
			cfg := locker.Config{
				TTL: 10 * time.Second, MaxHold: of.max, Logger: slog.New(slog.DiscardHandler),
			}
			bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
				time.Sleep(time.Hour) // how old the client is counts as well
				g := mustLock(t, l, "k", of.opts...)
				work := g.Context()
				time.Sleep(time.Minute)
				if n := b.renews.Load(); n < 10 || work.Err() != nil {
					t.Errorf("%d renewals in a minute at a TTL of 10s, and the hold has ended: %v",
						n, context.Cause(work))
				}
				renew(silent)
				time.Sleep(10 * time.Second)
				if !errors.Is(context.Cause(work), locker.ErrLost) {
					t.Errorf("%sa loss was not told: the store was silent for a TTL",
						history.Broken)
				}
				wantErr(t, g.Unlock(), locker.ErrLost)
			})
		})
	}
}

func TestUnlockAfterMaxHoldReleases(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{MaxHold: time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			<-g.Context().Done()
			wantErr(t, g.Unlock(), locker.ErrMaxHold)
			wantHeld(t, b, "k", false)
		})
}

// covers: B5, B4
func TestRenewalIsJoinedBeforeRelease(t *testing.T) {
	b := hook()
	var renewing atomic.Bool
	b.renew = func(ctx context.Context, c backend.Claim) error {
		renewing.Store(true)
		<-ctx.Done() // sits in the network until told to stop
		renewing.Store(false)
		return ctx.Err()
	}
	b.release = func(ctx context.Context, c backend.Claim) error {
		if renewing.Load() {
			t.Error("released while a renewal was under way")
		}
		return storetest.Release(ctx, b.Backend, c)
	}
	bubble(t, b, locker.Config{TTL: 30 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			for !renewing.Load() {
				time.Sleep(10 * time.Millisecond)
			}
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
			n := b.renews.Load()
			time.Sleep(time.Hour)
			if b.renews.Load() != n {
				t.Error("renewed after Unlock")
			}
		})
}

func TestCheckAsksTheStore(t *testing.T) {
	b := hook()
	var silent atomic.Bool
	b.renew = func(ctx context.Context, c backend.Claim) error {
		if silent.Load() {
			return errSilence
		}
		return b.Backend.Renew(ctx, c)
	}
	bubble(t, b, locker.Config{TTL: 30 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			time.Sleep(5 * time.Second)
			if err := g.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := time.Until(g.Until()); left < 29*time.Second {
				t.Errorf("Check left %v on the deadline, want it renewed", left)
			}
			silent.Store(true)
			err := g.Check(t.Context())
			wantErr(t, err, errSilence)
			if errors.Is(err, locker.ErrLost) {
				t.Error("no answer was taken for a loss")
			}
			if _, err := g.Value(); err != nil {
				t.Errorf("an unanswered Check ended the hold: %v", err)
			}
			silent.Store(false)
			time.Sleep(time.Hour) // renewal goes on after an unanswered Check
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
		})
}

func TestCheckReturnsWithItsCtx(t *testing.T) {
	b := hook()
	b.renew = func(ctx context.Context, _ backend.Claim) error { <-ctx.Done(); return ctx.Err() }
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		defer g.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, g.Check(ctx), context.DeadlineExceeded)
		if _, err := g.Value(); err != nil {
			t.Error(err)
		}
	})
}

// The first hold after one whose lease ran out is told of it, and no later one.
//
// covers: G6
func TestTookOver(t *testing.T) {
	b := membackend.New()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		for _, waits := range []bool{true, false} {
			key := fmt.Sprint("waits ", waits)
			dead := backend.Claim{
				Key: key, Owner: backend.NewOwner(), TTL: 5 * time.Second,
				Reserve: 4,
			}
			grant, err := b.TryAcquire(t.Context(), dead)
			storetest.Want(t, "acquire", err, nil)
			last := grant.Token + uint64(grant.Reserved) - 1
			if !waits {
				time.Sleep(dead.TTL)
			}
			var mu sync.Mutex
			var told []uint64
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					g, err := l.Lock(t.Context(), key)
					storetest.Want(t, "lock", err, nil)
					mu.Lock()
					told = append(told, g.Hold().TookOver)
					mu.Unlock()
					storetest.Want(t, "unlock", g.Unlock(), nil)
				})
			}
			all.Wait()
			if !slices.Equal(told, []uint64{last, 0, 0}) {
				t.Errorf("%s: holds took over from %v, want from token %d once", key, told, last)
			}
		}
	})
}
