package locker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

// Defects that this package once had, each with the test that found it.

// Close with a deadline hangs behind a Lock whose first attempt is not answered. The backend keeps
// its contract: it returns when ctx is done. Nothing links that ctx to closing or detach before
// wait(). A pending call is granted after Close has begun, and after Close has cut off what was
// left: nobody cuts this one off, so Close hangs until the guard is unlocked.
func TestPendingCallIsNotGrantedAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := hook()
		b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
			select {
			case <-time.After(5 * time.Second): // slow, but less than half the TTL
			case <-ctx.Done():
				return backend.Grant{}, ctx.Err()
			}
			return b.Backend.TryAcquire(ctx, c)
		}
		l, _ := locker.New(b, locker.Bare, locker.Config{})
		go func() {
			g, err := l.Lock(context.Background(), "k")
			if err == nil {
				t.Error("a call that was pending when Close was called has been granted; " +
					"want ErrClosed")
				time.Sleep(time.Hour)
				_ = g.Unlock()
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		err := l.Shutdown(ctx)
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("Close returned %v after the call (%v), its ctx had 1s", d, err)
		}
	})
}

// Close says nil although it cut off a clean-up: the lock is still in the store.
func TestCloseTellsOfACleanUpThatWasCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := hook()
		b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
			_, _ = b.Backend.TryAcquire(ctx, c)
			return backend.Grant{}, errSilence
		}
		b.release = func(ctx context.Context, _ backend.Claim) error {
			<-ctx.Done()
			return ctx.Err()
		}
		l, _ := locker.New(b, locker.Bare, locker.Config{})
		_, _ = l.TryLock(context.Background(), "k")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := l.Shutdown(ctx)
		wantHeld(t, b, "k", true)
		if err == nil {
			t.Error("Close ran out of time, left a lock behind, and returned nil")
		}
	})
}

// A hold is ended as lost because the ctx of Check belongs to another guard that was lost.
// membackend answers with context.Cause(ctx), which then wraps backend.ErrLost and is taken for the
// store's answer.
func TestCheckUnderTheContextOfALostGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := hook()
		l, _ := locker.New(b, locker.Bare, locker.Config{})
		defer l.Close()
		for i := range 50 { // the select in check is fair: half of the time it takes the turn
			outer := mustLock(t, l, fmt.Sprint("outer", i))
			inner := mustLock(t, l, fmt.Sprint("inner", i))
			b.renew = func(context.Context, backend.Claim) error { return backend.ErrLost }
			_ = outer.Check(context.Background()) // the store says that outer is lost
			b.renew = nil
			ctx := outer.Context()
			err := inner.Check(ctx)
			if _, verr := inner.Value(); verr != nil {
				st, _ := b.Inspect(context.Background(), fmt.Sprint("inner", i))
				t.Fatalf("inner is held in the store by %d, but was ended: %v", len(st.Holders),
					verr)
			}
			if errors.Is(err, locker.ErrLost) {
				t.Errorf("Check of a hold that is good fails with ErrLost: %v", err)
			}
			_ = outer.Unlock()
			_ = inner.Unlock()
		}
	})
}

// Check hides ctx.Err() behind the cause, or waits beyond its ctx for a renewal that is under way.
func TestCheckShowsCtxErr(t *testing.T) {
	b := hook()
	b.renew = func(ctx context.Context, _ backend.Claim) error { <-ctx.Done(); return ctx.Err() }
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		defer g.Unlock()
		go func() { _ = g.Check(context.Background()) }() // has the turn
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("why"))
		began := time.Now()
		if err := g.Check(ctx); !errors.Is(err, context.Canceled) || time.Since(began) > 0 {
			t.Errorf("%v after %v does not wrap context.Canceled", err, time.Since(began))
		}
	})
}

// Watch has no bound: a waiter sleeps beside a free lock for as long as the subscription is not
// confirmed.
func TestUnconfirmedWatchDoesNotHideAFreeLock(t *testing.T) {
	b := hook()
	b.watch = func(ctx context.Context, _ backend.Claim) (<-chan backend.Wake, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Hour): // so that this test ends
			return nil, errSilence
		}
	}
	bubble(t, b, locker.Config{TTL: time.Minute}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		time.AfterFunc(100*time.Millisecond, func() { _ = g.Unlock() })
		start := time.Now()
		defer mustLock(t, l, "k").Unlock()
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("waited %v for a lock that was free after 100ms; the fallback is 1s", d)
		}
	})
}

// Nor has the first attempt: Lock without a deadline never returns, whatever StoreTimeout says.
// The hold was good until Unlock was called; the store comes back after the lease has run out, and
// Unlock claims a loss.
func TestUnlockClaimsNoLossAfterAnOutage(t *testing.T) {
	t.Run("outage", unlockAfterOutage)
	t.Run("slow release", unlockSlowly)
}

func unlockAfterOutage(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{TTL: 10 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			time.Sleep(2 * time.Second) // before the first renewal
			down := time.Now()
			b.release = func(ctx context.Context, c backend.Claim) error {
				if time.Since(down) < 9*time.Second {
					return backend.ErrUnavailable // certainly not executed
				}
				return storetest.Release(ctx, b.Backend, c)
			}
			if err := g.Unlock(); errors.Is(err, locker.ErrLost) {
				t.Errorf("the hold had 7.9s left when Unlock was called, and Unlock says: %v", err)
			}
		})
}

func unlockSlowly(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{TTL: 10 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			b.renew = func(context.Context, backend.Claim) error { return errSilence }
			g := mustLock(t, l, "k")
			time.Sleep(9850 * time.Millisecond) // 47 ms before the deadline
			b.release = func(ctx context.Context, c backend.Claim) error {
				time.Sleep(200 * time.Millisecond) // a slow network: one request, one answer
				return storetest.Release(ctx, b.Backend, c)
			}
			if err := g.Unlock(); errors.Is(err, locker.ErrLost) {
				t.Errorf("the hold was good when Unlock was called, and Unlock says: %v", err)
			}
		})
}

// Until of a hold that has ended lies in the future, while another holds the lock.
func TestUntilOfAnEndedHold(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		_ = g.Unlock()
		defer mustLock(t, l, "k").Unlock()
		if left := time.Until(g.Until()); left > 0 {
			t.Errorf("unlocked, taken by another, and 'provably good' for %v", left)
		}
		lost := mustLock(t, l, "other")
		b.renew = func(context.Context, backend.Claim) error { return backend.ErrLost }
		wantErr(t, lost.Check(t.Context()), locker.ErrLost)
		if left := time.Until(lost.Until()); left > 0 {
			t.Errorf("lost, says the store, and 'provably good' for %v", left)
		}
		_ = lost.Unlock()
	})
}

// TTLs that membackend accepts and that no guard can ever be believed for. The ctx of a Lock ends
// while its Binder works, and the store goes silent: Lock returns after a whole TTL.
func TestCancelledBinderDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := hook()
		b.release = func(ctx context.Context, _ backend.Claim) error {
			<-ctx.Done()
			return ctx.Err()
		}
		bind := func(ctx context.Context, _ locker.Hold) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		l, _ := locker.New(b, bind, locker.Config{})
		defer l.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := l.Lock(ctx, "k")
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("Lock returned %v after a ctx of 1s was set: %v", d, err)
		}
	})
}

// Do changes fn's error.
func TestDoReturnsTheErrorOfFn(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		err := locker.Do(t.Context(), l, "k", func(context.Context, struct{}) error {
			return io.EOF
		})
		if err != io.EOF { //nolint:errorlint // the very error, not one that wraps it
			t.Errorf("fn returned io.EOF, Do a %T", err)
		}
	})
}

// Docs: any UTF-8 of 1 to 1024 bytes.
// A zero Guard is like a nil one.
func TestZeroGuard(t *testing.T) {
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("a zero Guard panics: %v", r)
		}
	}()
	var g locker.Guard[int]
	_ = g.Unlock()
}

// Checks that are given too little time put off the renewal each time, and hold the turn when its
// timer fires.
func TestImpatientChecksDoNotStarveRenewal(t *testing.T) {
	for _, pause := range []time.Duration{
		0, 50 * time.Microsecond, time.Millisecond,
		10 * time.Millisecond,
	} {
		t.Run(pause.String(), func(t *testing.T) {
			b := hook()
			b.renew = func(ctx context.Context, c backend.Claim) error {
				select {
				case <-time.After(5 * time.Millisecond): // the store is well, 5 ms away
					return b.Backend.Renew(ctx, c)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			bubble(t, b, locker.Config{TTL: 10 * time.Second},
				func(t *testing.T, l *locker.Client[struct{}]) {
					g := mustLock(t, l, "k")
					start := time.Now()
					for time.Since(start) < 30*time.Second {
						ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
						err := g.Check(ctx)
						cancel()
						if errors.Is(err, locker.ErrLost) {
							t.Errorf("lost after %v: %v", time.Since(start), err)
							break
						}
						time.Sleep(pause)
					}
					_ = g.Unlock()
				})
		})
	}
}

// An answer that is the echo of ctx, a moment before ctx has ended, replaces what is known of the
// holder. (The Redis backend gives such answers: see endOf.) Close does not wait for a guard whose
// hold was ended by MaxHold, and its Unlock then cannot release. Goexit in fn and in the Binder:
// held, reported as such.
func TestGoexit(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = locker.Do(context.Background(), l, "k", func(context.Context, struct{}) error {
				runtime.Goexit()
				return nil
			})
		}()
		<-done
		wantHeld(t, b, "k", false)
		l2, _ := locker.New(b, func(context.Context, locker.Hold) (int, error) {
			runtime.Goexit()
			return 0, nil
		}, locker.Config{})
		done = make(chan struct{})
		go func() {
			defer close(done)
			_, _ = l2.Lock(context.Background(), "k")
		}()
		<-done
		wantHeld(t, b, "k", false)
		if err := l2.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A renewal that is in flight when Unlock is called says that the hold is gone. So it was lost,
// whatever the release comes to: it may be answered when the lease would have ended by itself, or
// be repeated because it was not answered, and what it was to save is not saved.
//
// covers: B3, B8
func TestUnlockOfAHoldThatARenewalHasRefuted(t *testing.T) {
	const ttl = 10 * time.Second
	refuted := func(answer error) *hooked {
		b := hook()
		b.renew = func(ctx context.Context, c backend.Claim) error {
			<-ctx.Done() // until Unlock tells it to stop; the store had answered before
			if err := storetest.Release(context.Background(), b.Backend, c); err != nil {
				return err
			}
			return answer
		}
		return b
	}
	silentOnce := func(b *hooked) func(context.Context, backend.Claim) error {
		return func(ctx context.Context, c backend.Claim) error {
			if b.releases.Load() == 1 {
				return errSilence
			}
			return storetest.Release(ctx, b.Backend, c)
		}
	}
	unlock := func(t *testing.T, answer error, release func(*hooked)) {
		t.Helper()
		b := refuted(answer)
		release(b)
		bubble(t, b, locker.Config{TTL: ttl}, func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			for b.renews.Load() == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			wantErr(t, g.Unlock(), locker.ErrLost)
		})
	}
	for name, answer := range map[string]error{
		"": backend.ErrLost, ", foreign": backend.ErrForeign,
	} {
		t.Run("answered late"+name, func(t *testing.T) {
			unlock(t, answer, func(b *hooked) {
				b.release = func(ctx context.Context, c backend.Claim) error {
					time.Sleep(ttl)
					return storetest.Release(context.WithoutCancel(ctx), b.Backend, c)
				}
			})
		})
		t.Run("not answered"+name, func(t *testing.T) {
			unlock(t, answer, func(b *hooked) { b.release = silentOnce(b) })
		})
	}
	t.Run("not saved", func(t *testing.T) {
		b := refuted(backend.ErrLost)
		b.release = silentOnce(b)
		synctest.Test(t, func(t *testing.T) {
			s, err := locker.NewStore(b, locker.JSON[int](), locker.Config{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			err = s.Update(t.Context(), "k", func(context.Context, int) (int, error) {
				for b.renews.Load() == 0 {
					time.Sleep(10 * time.Millisecond)
				}
				return 1, nil
			})
			wantErr(t, err, locker.ErrLost)
		})
	})
}

// A backend may be a value that Go cannot compare, such as a struct with a function.
func TestBackendThatCannotBeCompared(t *testing.T) {
	type logged struct {
		backend.Backend
		log func(string)
	}
	l, err := locker.New(logged{hook(), func(string) {}}, locker.Bare, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := mustLock(t, l, "k")
	_, err = l.Lock(g.Context(), "k")
	wantErr(t, err, locker.ErrWouldDeadlock)
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}

// stalled is an EventObserver that keeps the lease that an acquirer got, once, until it is over: as
// a process does that was stopped just then.
type stalled struct {
	locker.Observer
	by atomic.Int64 // how long
}

func (o *stalled) Event(_ context.Context, e locker.Event) {
	if by := o.by.Load(); e.Kind == locker.EventGrant && e.Lease.Passes == 0 && by > 0 {
		o.by.Store(0)
		time.Sleep(time.Duration(by))
	}
}

// A lease that is over when its acquirer gives it to the first who waits is lost to that one; the
// others are an acquirer's at once, and not when the first gets round to its Unlock.
func TestLeaseThatIsLostBeforeItIsGiven(t *testing.T) {
	b := hook()
	b.renew = func(context.Context, backend.Claim) error { return errSilence }
	o := &stalled{Observer: locker.Observers()}
	bubble(t, b, locker.Config{TTL: 10 * time.Second, Observer: o},
		func(t *testing.T, l *locker.Client[struct{}]) {
			held := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
			if _, err := b.Backend.TryAcquire(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			first, second := make(chan *locker.Guard[struct{}], 1),
				make(chan *locker.Guard[struct{}], 1)
			go func() { first <- mustLock(t, l, "k") }()
			synctest.Wait()
			go func() { second <- mustLock(t, l, "k") }()
			synctest.Wait()
			o.by.Store(int64(11 * time.Second))
			if _, err := b.Backend.Release(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			g := <-first
			_, err := g.Value()
			wantErr(t, err, locker.ErrLost)
			select {
			case other := <-second:
				if err := other.Unlock(); err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Error("the second waits for the Unlock of a hold that was lost")
			}
			wantErr(t, g.Unlock(), locker.ErrLost)
		})
}
