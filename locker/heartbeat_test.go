package locker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// A told backend answers heartbeats by told, if that is set.
type told struct {
	beating
	told func(ctx context.Context, claims []backend.Claim) ([]error, error)
}

func (b *told) Heartbeat(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if b.told == nil {
		return b.beating.Heartbeat(ctx, claims)
	}
	b.beats.Add(1)
	return b.told(ctx, claims)
}

// waitFor has n goroutines lock the key that each is given, unlock, and tell how that ended.
func waitFor(t *testing.T, l *locker.Client[struct{}], n int, key func(i int) string,
	opts ...locker.Option,
) (ended func() []error) {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() {
			g, err := l.Lock(t.Context(), key(i), opts...)
			if err == nil {
				err = g.Unlock()
			}
			errs[i] = err
		})
	}
	synctest.Wait()
	return func() []error {
		all.Wait()
		return errs
	}
}

func numbered(i int) string { return fmt.Sprint("k", i) }

// All waiters of a client share their heartbeats, whatever their keys: so thousands of keys cost a
// few requests, no attempt is repeated, and no place lapses.
// covers: W5, W8
func TestHeartbeatsOfManyKeys(t *testing.T) {
	b := &told{beating: beating{hooked: hook()}}
	synctest.Test(t, func(t *testing.T) {
		l := start(t, b, locker.Config{TTL: time.Minute})
		other := start(t, b.Backend, locker.Config{TTL: time.Hour})
		const n = 1000
		var held []*locker.Guard[struct{}]
		for i := range n {
			held = append(held, mustLock(t, other, numbered(i)))
		}
		ended := waitFor(t, l, n, numbered)
		time.Sleep(3 * time.Second)
		b.acquires.Store(0)
		b.beats.Store(0)
		time.Sleep(100 * time.Second)
		if beats, asked := b.beats.Load(), b.acquires.Load(); beats < 300 || beats > 800 ||
			asked > 0 {
			t.Errorf("%d heartbeats and %d attempts in 100s for %d keys; want 4 to 8 "+
				"heartbeats a second", beats, asked, n)
		}
		for _, g := range held {
			_ = g.Unlock()
		}
		if err := errors.Join(ended()...); err != nil {
			t.Error(err)
		}
		// Each hand-over was believed by the last heartbeat.
		if asked := b.acquires.Load(); asked > 0 {
			t.Errorf("%d attempts for %d keys that were handed over", asked, n)
		}
		_, _ = l.Close(), other.Close()
	})
}

// A heartbeat is sent when the lease ends that blocks, as last told: so a holder that vanished
// after it had renewed keeps nobody waiting for longer than its lease, and one that goes on
// renewing costs no attempts.
// covers: W9
func TestHeartbeatAtTheEndOfTheLease(t *testing.T) {
	b := &told{beating: beating{hooked: hook()}}
	cfg := locker.Config{TTL: time.Minute, Wait: waiting.Config{Fallback: 10 * time.Second}}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		c := backend.Claim{Key: "k", Owner: "gone", TTL: 9 * time.Second}
		if _, err := b.Backend.TryAcquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for i := range 4 {
			time.AfterFunc(time.Duration(i)*5*time.Second, func() {
				_ = b.Backend.Renew(t.Context(), c)
			})
		}
		g := mustLock(t, l, "k")
		if d := time.Since(began) - 24*time.Second; d < 0 || d > 5*time.Millisecond ||
			b.acquires.Load() > 3 {
			t.Errorf("granted %v after the end of the lease, by %d attempts", d, b.acquires.Load())
		}
		_ = g.Unlock()
	})
}

// The end of one lease is noticed in time also by a client whose next heartbeat, for another key,
// is later.
//
// covers: W9
func TestHeartbeatAtTheFirstEndOfTwo(t *testing.T) {
	b := &told{beating: beating{hooked: hook()}}
	cfg := locker.Config{TTL: time.Minute, Wait: waiting.Config{Fallback: 10 * time.Second}}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		leases := []time.Duration{time.Minute, 2 * time.Second}
		for i, lease := range leases {
			c := backend.Claim{Key: numbered(i), Owner: "gone", TTL: lease}
			if _, err := b.Backend.TryAcquire(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		ended := waitFor(t, l, 1, numbered)
		g := mustLock(t, l, numbered(1))
		if d := time.Since(began) - leases[1]; d < 0 || d > 5*time.Millisecond {
			t.Errorf("granted %v after the end of the lease", d)
		}
		_ = g.Unlock()
		for _, err := range ended() {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// A heartbeat gets no answer for a while. That of another key, which is due meanwhile, is sent in
// time.
//
// covers: W2, W11
func TestHeartbeatBesideOneWithoutAnAnswer(t *testing.T) {
	for range 10 { // with jitter the second may also begin to wait when the first has been sent
		heartbeatBesideOneWithoutAnAnswer(t)
	}
}

func heartbeatBesideOneWithoutAnAnswer(t *testing.T) {
	t.Helper()
	b := &told{beating: beating{hooked: hook()}}
	// The second begins to wait while the first's heartbeat has no answer.
	const fallback, later = 10 * time.Second, 9500 * time.Millisecond
	cfg := locker.Config{TTL: time.Minute, Wait: waiting.Config{Fallback: fallback}}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		began, kept, answers := time.Now(), make(chan time.Duration, 100), make(chan struct{})
		b.told = func(ctx context.Context, claims []backend.Claim) ([]error, error) {
			if slices.ContainsFunc(claims, func(c backend.Claim) bool {
				return c.Key == numbered(1)
			}) {
				kept <- time.Since(began)
				return b.Backend.Heartbeat(ctx, claims)
			}
			select {
			case <-answers:
				return b.Backend.Heartbeat(ctx, claims)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		ended := make([]func() []error, 2)
		for i := range ended {
			c := backend.Claim{Key: numbered(i), Owner: "other", TTL: 40 * time.Second}
			if _, err := b.Backend.TryAcquire(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			ended[i] = waitFor(t, l, 1, func(int) string { return numbered(i) })
			time.Sleep(later)
		}
		if first := <-kept; first > later+fallback+fallback/4 {
			t.Errorf("the place of who came %v after the first was kept after %v, by "+
				"intervals of %v", later, first, fallback)
		}
		close(answers)
		for _, e := range ended {
			for _, err := range e() {
				if err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// What a hand-over proves is counted from the heartbeat that was answered last: from before it was
// sent, and only for a grant whose token the heartbeat did not know yet.
// covers: A6, W9
func TestHandOverAfterAHeartbeat(t *testing.T) {
	for _, token := range []uint64{6, 7, 8} {
		b := &told{beating: beating{hooked: queued(18*time.Second, granted(token, 30*time.Second))}}
		var last time.Time // when the last heartbeat was sent that was answered
		b.told = func(ctx context.Context, claims []backend.Claim) ([]error, error) {
			sent := time.Now()
			waiting.Pause(ctx, 3*time.Second) // each answer takes a while
			last = sent
			return []error{&backend.HeldError{Position: 1, Token: 7}}, nil
		}
		bubble(t, b, fallback, func(t *testing.T, l *locker.Client[struct{}]) {
			g, _, asked := handOff(t, l, b.hooked, 18*time.Second)
			switch {
			case token <= 7 && (asked != 3 || g.Hold().Token != 9):
				t.Errorf("token %d was believed after %d attempts, though the heartbeat had told 7",
					token, asked)
			case token > 7 && (asked != 2 ||
				!g.Until().Equal(last.Add(30*time.Second-303*time.Millisecond))):
				t.Errorf("good until %v after the heartbeat was sent, by %d attempts",
					g.Until().Sub(last), asked)
			}
			_ = g.Unlock()
		})
	}
}

// Heartbeats that are lost, slow, or answered for some keys only, cost nobody his place; without
// any answer the wait ends after StoreTimeout.
// covers: W2, W11
func TestHeartbeatWithoutAnAnswer(t *testing.T) {
	modes := map[string][]locker.Option{"exclusive": nil, "shared": {locker.Shared()}}
	lost := errors.New("no answer")
	for mode, opts := range modes {
		for name, fail := range map[string]func(b *told, ctx context.Context,
			claims []backend.Claim) ([]error, error){
			// Executed, and the answer never comes.
			"slow": func(b *told, ctx context.Context, claims []backend.Claim) ([]error, error) {
				_, _ = b.Backend.Heartbeat(ctx, claims)
				<-ctx.Done()
				return nil, ctx.Err()
			},
			"every other one": func(b *told, ctx context.Context,
				claims []backend.Claim,
			) ([]error, error) {
				if b.beats.Load()%2 == 0 {
					return nil, lost
				}
				return b.Backend.Heartbeat(ctx, claims)
			},
			"some keys": func(b *told, ctx context.Context,
				claims []backend.Claim,
			) ([]error, error) {
				answers, err := b.Backend.Heartbeat(ctx, claims)
				for i := range claims {
					if claims[i].Key < "k5" {
						answers[i] = lost
					}
				}
				return answers, err
			},
		} {
			t.Run(mode+"/"+name, func(t *testing.T) {
				b := &told{beating: beating{hooked: hook()}}
				b.told = func(ctx context.Context, claims []backend.Claim) ([]error, error) {
					return fail(b, ctx, claims)
				}
				synctest.Test(t, func(t *testing.T) {
					l := start(t, b, locker.Config{TTL: time.Minute})
					other := start(t, b.Backend, locker.Config{TTL: time.Hour})
					var held []*locker.Guard[struct{}]
					for i := range 10 {
						held = append(held, mustLock(t, other, numbered(i)))
					}
					ended := waitFor(t, l, 10, numbered, opts...)
					asked := b.acquires.Load()
					time.Sleep(25 * time.Second) // below StoreTimeout
					if more := b.acquires.Load() - asked; more > 0 {
						t.Errorf("%d attempts: places were lost, or given up", more)
					}
					for _, g := range held {
						_ = g.Unlock()
					}
					if err := errors.Join(ended()...); err != nil {
						t.Error(err)
					}
					_, _ = l.Close(), other.Close()
				})
			})
		}
		t.Run(mode+"/nothing", func(t *testing.T) {
			b := &told{beating: beating{hooked: hook()}}
			var silent atomic.Bool
			b.told = func(ctx context.Context, claims []backend.Claim) ([]error, error) {
				if silent.Load() {
					return nil, lost
				}
				return b.Backend.Heartbeat(ctx, claims)
			}
			b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
				if silent.Load() {
					return backend.Grant{}, lost
				}
				return b.Backend.TryAcquire(ctx, c)
			}
			synctest.Test(t, func(t *testing.T) {
				l := start(t, b, locker.Config{TTL: time.Minute, StoreTimeout: 10 * time.Second})
				other := start(t, b.Backend, locker.Config{TTL: time.Hour})
				g := mustLock(t, other, "k")
				ended := waitFor(t, l, 3, numberless, opts...)
				time.Sleep(20 * time.Second)
				silent.Store(true)
				began := time.Now()
				for _, err := range ended() {
					wantErr(t, err, locker.ErrNotAcquired)
				}
				if d := time.Since(began); d < 9*time.Second || d > 14*time.Second {
					t.Errorf("the waits ended %v after the last answer, want StoreTimeout, 10s", d)
				}
				_ = g.Unlock()
				_, _ = l.Close(), other.Close()
			})
		})
	}
}

// A wait that ends takes its place out of the heartbeats, also while one is under way.
// covers: W8
func TestHeartbeatOfAWaitThatEnds(t *testing.T) {
	b := &told{beating: beating{hooked: hook()}}
	var kept atomic.Int64
	b.told = func(ctx context.Context, claims []backend.Claim) ([]error, error) {
		kept.Add(int64(len(claims)))
		waiting.Pause(ctx, 500*time.Millisecond)
		return b.Backend.Heartbeat(ctx, claims)
	}
	synctest.Test(t, func(t *testing.T) {
		l := start(t, b, locker.Config{TTL: time.Minute})
		other := start(t, b.Backend, locker.Config{TTL: time.Hour})
		g := mustLock(t, other, "k")
		ended := waitFor(t, l, 20, numberless, locker.Shared(),
			locker.WaitLimit(1300*time.Millisecond))
		for _, err := range ended() {
			wantErr(t, err, context.DeadlineExceeded)
		}
		if kept.Load() == 0 {
			t.Error("no heartbeat")
		}
		kept.Store(0)
		time.Sleep(10 * time.Second)
		if n := kept.Load(); n > 0 {
			t.Errorf("%d heartbeats for nobody", n)
		}
		_ = g.Unlock()
		_, _ = l.Close(), other.Close()
	})
}

// Where one request cannot keep several places, each claim repeats its attempt.
func TestNoHeartbeats(t *testing.T) {
	b := &told{beating: beating{hooked: &hooked{Backend: membackend.New()}}}
	b.told = func(ctx context.Context, claims []backend.Claim) ([]error, error) {
		return backend.Base{}.Heartbeat(ctx, claims)
	}
	synctest.Test(t, func(t *testing.T) {
		l := start(t, b, locker.Config{TTL: time.Minute})
		other := start(t, b.Backend, locker.Config{TTL: time.Hour})
		g := mustLock(t, other, "k")
		ended := waitFor(t, l, 1, numberless)
		time.Sleep(20 * time.Second)
		if asked := b.acquires.Load(); asked < 15 || b.beats.Load() != 1 {
			t.Errorf("%d attempts and %d heartbeats in 20s", asked, b.beats.Load())
		}
		_ = g.Unlock()
		if err := errors.Join(ended()...); err != nil {
			t.Error(err)
		}
		_, _ = l.Close(), other.Close()
	})
}

func numberless(int) string { return "k" }
