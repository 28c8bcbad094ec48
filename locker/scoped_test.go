package locker_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

type verb = func(context.Context, backend.Claim) error

// switchable is a backend whose renewals and releases a test can change while they go on. Nil
// forwards.
func switchable() (b *hooked, renew, release func(verb)) {
	b = hook()
	of := func(forward verb) (verb, func(verb)) {
		var now atomic.Pointer[verb]
		run := func(ctx context.Context, c backend.Claim) error {
			if do := now.Load(); do != nil && *do != nil {
				return (*do)(ctx, c)
			}
			return forward(ctx, c)
		}
		return run, func(do verb) { now.Store(&do) }
	}
	b.renew, renew = of(b.Backend.Renew)
	b.release, release = of(func(ctx context.Context, c backend.Claim) error {
		return storetest.Release(ctx, b.Backend, c)
	})
	return b, renew, release
}

// A valve counts what is open, and holds up whoever closes for as long as a test says.
type valve struct {
	open, opened, closed atomic.Int64
	most                 atomic.Int64
	closing              func() error // nil: nothing
}

func (v *valve) bind() locker.Binder[int] {
	return locker.Scoped(
		func(context.Context, locker.Hold) (int, error) {
			v.most.Store(max(v.most.Load(), v.open.Add(1)))
			return int(v.opened.Add(1)), nil
		},
		func(int) error {
			defer v.closed.Add(1)
			defer v.open.Add(-1)
			if v.closing != nil {
				return v.closing()
			}
			return nil
		})
}

// want fails unless so many were opened and closed, and never two were open.
func (v *valve) want(t *testing.T, opened, closed int64) {
	t.Helper()
	if v.opened.Load() != opened || v.closed.Load() != closed {
		t.Errorf("%d opened and %d closed, want %d and %d", v.opened.Load(), v.closed.Load(),
			opened, closed)
	}
	if v.most.Load() > 1 {
		t.Errorf("%d were open together", v.most.Load())
	}
}

// scoped runs f in a bubble with a Client whose guards protect what v counts.
func scoped(t *testing.T, b backend.Backend, cfg locker.Config, v *valve,
	f func(t *testing.T, l *locker.Client[int]),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l, err := locker.New(b, v.bind(), cfg)
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

func mustScope(t *testing.T, l *locker.Client[int], key string,
	opts ...locker.Option,
) *locker.Guard[int] {
	t.Helper()
	g, err := l.Lock(t.Context(), key, opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", key, err)
	}
	return g
}

// What a hold protects is closed once, in Unlock, while the store still has the lock.
func TestScopedClosesInUnlockBeforeTheRelease(t *testing.T) {
	b, v := hook(), &valve{}
	errFlush := errors.New("could not flush")
	var g *locker.Guard[int]
	v.closing = func() error {
		wantHeld(t, b, "k", true)
		if _, err := g.Value(); !errors.Is(err, locker.ErrUnlocked) {
			t.Errorf("Value while it is closed: %v", err)
		}
		stack := make([]byte, 1<<16)
		if !strings.Contains(string(stack[:runtime.Stack(stack, false)]),
			"TestScopedClosesInUnlock") {
			t.Error("closing does not run in the goroutine that unlocks")
		}
		return errFlush
	}
	scoped(t, b, locker.Config{}, v, func(t *testing.T, l *locker.Client[int]) {
		g = mustScope(t, l, "k")
		for range 2 {
			wantErr(t, g.Unlock(), errFlush)
		}
		wantHeld(t, b, "k", false)
		v.want(t, 1, 1)
		v.closing = nil
		g = mustScope(t, l, "k")
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		v.want(t, 2, 2)
	})
}

// However a hold ends without its Unlock, what it protects is closed at once, and a later Unlock
// has the error.
func TestScopedClosesWithoutUnlock(t *testing.T) {
	errFlush := errors.New("could not flush")
	for name, end := range map[string]struct {
		cfg   locker.Config
		after time.Duration
		do    func(renew func(verb), l *locker.Client[int])
		want  error
	}{
		"loss": {
			locker.Config{TTL: time.Minute},
			time.Minute,
			func(renew func(verb), _ *locker.Client[int]) {
				renew(func(context.Context, backend.Claim) error { return backend.ErrLost })
			}, locker.ErrLost,
		},
		"MaxHold": {
			locker.Config{TTL: time.Minute, MaxHold: time.Second},
			2 * time.Second, nil,
			locker.ErrMaxHold,
		},
		"Close": {
			locker.Config{TTL: time.Minute},
			time.Second,
			func(_ func(verb), l *locker.Client[int]) {
				go l.Close()
			}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, renew, _ := switchable()
			v := &valve{closing: func() error { return errFlush }}
			scoped(t, b, end.cfg, v, func(t *testing.T, l *locker.Client[int]) {
				g := mustScope(t, l, "k")
				if end.do != nil {
					end.do(renew, l)
				}
				time.Sleep(end.after)
				synctest.Wait()
				v.want(t, 1, 1)
				err := g.Unlock()
				wantErr(t, err, errFlush)
				if end.want != nil {
					wantErr(t, err, end.want)
				}
				v.want(t, 1, 1)
			})
		})
	}
}

// The holder's goroutine is still inside after a loss or MaxHold, and so is what closes: the next
// of this process has the key, and opens nothing until the last one is closed.
func TestScopedNextWaitsForTheLast(t *testing.T) {
	for _, way := range []string{"loss", "MaxHold", "dropped, and taken by TryLock"} {
		t.Run(way, func(t *testing.T) {
			b, renew, _ := switchable()
			v := &valve{closing: func() error { time.Sleep(10 * time.Minute); return nil }}
			cfg := locker.Config{TTL: time.Minute}
			var opts []locker.Option
			if way == "MaxHold" {
				opts = append(opts, locker.MaxHold(time.Second))
			}
			scoped(t, b, cfg, v, func(t *testing.T, l *locker.Client[int]) {
				var mine backend.Claim
				b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
					mine = c
					return b.Backend.TryAcquire(ctx, c)
				}
				g := mustScope(t, l, "k", opts...)
				b.acquire = nil
				switch way {
				case "loss":
					renew(func(ctx context.Context, c backend.Claim) error {
						if c.Owner == mine.Owner {
							return errSilence
						}
						return b.Backend.Renew(ctx, c)
					})
				case "dropped, and taken by TryLock":
					_, _ = b.Backend.Release(t.Context(), mine)
				}
				locked := make(chan *locker.Guard[int])
				go func() {
					lock := l.Lock
					if strings.HasPrefix(way, "dropped") {
						lock = l.TryLock
					}
					next, err := lock(context.Background(), "k")
					if err != nil {
						t.Error(err)
					}
					locked <- next
				}()
				time.Sleep(5 * time.Minute) // the lease is long over, and the key the next one's
				synctest.Wait()
				v.want(t, 1, 0)
				wantHeld(t, b, "k", true)
				v.closing = nil
				next := <-locked
				v.want(t, 2, 1)
				if err := next.Unlock(); err != nil {
					t.Error(err)
				}
				if err := g.Unlock(); err == nil {
					t.Error("Unlock of a hold that was lost is nil")
				}
				v.want(t, 2, 2)
			})
		})
	}
}

// Nobody waits for a resource for longer than his ctx allows, and the lock is not kept then.
func TestScopedWaitEndsWithCtx(t *testing.T) {
	b, v := hook(), &valve{}
	scoped(t, b, locker.Config{TTL: time.Minute}, v, func(t *testing.T, l *locker.Client[int]) {
		blocked := make(chan struct{})
		v.closing = func() error { <-blocked; return nil }
		g := mustScope(t, l, "k", locker.MaxHold(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_, err := l.Lock(ctx, "k")
		wantErr(t, err, locker.ErrNotAcquired, context.DeadlineExceeded)
		v.want(t, 1, 0)
		close(blocked)
		wantErr(t, g.Unlock(), locker.ErrMaxHold)
		wantHeld(t, b, "k", false)
	})
}

// A lease is renewed while its resource is closed, whatever MaxHold says; if it is lost then,
// Unlock says so, as another may have had the key meanwhile.
func TestScopedSlowClose(t *testing.T) {
	for _, answer := range []error{nil, backend.ErrLost, errSilence} {
		lost := answer != nil
		b, renew, _ := switchable()
		v := &valve{closing: func() error { time.Sleep(10 * time.Minute); return nil }}
		scoped(t, b, locker.Config{TTL: time.Minute, MaxHold: 2 * time.Second}, v,
			func(t *testing.T, l *locker.Client[int]) {
				g := mustScope(t, l, "k")
				if lost {
					renew(func(context.Context, backend.Claim) error { return answer })
				}
				time.Sleep(time.Second)
				go func() {
					time.Sleep(9 * time.Minute)
					wantHeld(t, b, "k", !lost)
				}()
				switch err := g.Unlock(); {
				case lost:
					wantErr(t, err, locker.ErrLost)
				case err != nil:
					t.Error(err)
				}
				renew(nil)
				wantHeld(t, b, "k", false)
				v.want(t, 1, 1)
			})
	}
}

// What the last term of a leader opened is closed before that of the next is opened, and when it
// resigns.
func TestScopedLead(t *testing.T) {
	b, renew, _ := switchable()
	v := &valve{closing: func() error { time.Sleep(5 * time.Minute); return nil }}
	scoped(t, b, locker.Config{TTL: time.Minute}, v, func(t *testing.T, l *locker.Client[int]) {
		terms := 0
		err := locker.Lead(t.Context(), l, "k", func(ctx context.Context, _ int) error {
			if terms++; terms == 1 {
				renew(func(context.Context, backend.Claim) error { return backend.ErrLost })
				<-ctx.Done()
				renew(nil)
			}
			v.want(t, int64(terms), int64(terms-1))
			return nil
		})
		if err != nil || terms != 2 {
			t.Errorf("%d terms, %v", terms, err)
		}
		v.want(t, 2, 2)
	})
}

// Panics of open, of the work and of closing leave no lock, and nothing open.
func TestScopedPanics(t *testing.T) {
	b, v := hook(), &valve{closing: func() error { panic("in closing") }}
	scoped(t, b, locker.Config{}, v, func(t *testing.T, l *locker.Client[int]) {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic of the work is gone")
				}
			}()
			_ = locker.Do(t.Context(), l, "k", func(context.Context, int) error {
				panic("in the work")
			})
		}()
		v.want(t, 1, 1)
		wantHeld(t, b, "k", false)
		err := locker.Do(t.Context(), l, "k", func(context.Context, int) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "in closing") {
			t.Errorf("Do = %v, want the panic of closing", err)
		}
		v.want(t, 2, 2)

		fail := true
		bad, err := locker.New(b, locker.Scoped(
			func(context.Context, locker.Hold) (int, error) {
				if fail {
					panic("in open")
				}
				return 1, nil
			}, func(int) error { return nil }), locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer bad.Close()
		func() {
			defer func() { _ = recover() }()
			_, _ = bad.Lock(t.Context(), "k")
		}()
		wantHeld(t, b, "k", false)
		fail = false
		if err := mustScope(t, bad, "k").Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// Close waits for what is being closed, and for no longer than it has time.
func TestScopedBlocksCloseNoLongerThanItMay(t *testing.T) {
	for _, way := range []string{"unlocking", "MaxHold", "MaxHold, unlocking", "closed"} {
		t.Run(way, func(t *testing.T) {
			b, v := hook(), &valve{}
			synctest.Test(t, func(t *testing.T) {
				blocked := make(chan struct{})
				v.closing = func() error { <-blocked; return nil }
				cfg := locker.Config{}
				if strings.HasPrefix(way, "MaxHold") {
					cfg.MaxHold = time.Second
				}
				l, err := locker.New(b, v.bind(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				g := mustScope(t, l, "the key")
				time.Sleep(2 * time.Second)
				if strings.HasSuffix(way, "unlocking") {
					go g.Unlock()
					synctest.Wait()
				}
				start := time.Now()
				err = l.Close()
				wantErr(t, err, context.DeadlineExceeded)
				if !strings.Contains(err.Error(), "not closed: \"the key\"") {
					t.Errorf("Close = %v, want the key whose resource is open", err)
				}
				if took := time.Since(start); took > 11*time.Second {
					t.Errorf("Close took %v", took)
				}
				close(blocked)
				_ = g.Unlock()
				v.want(t, 1, 1)
			})
		})
	}
}

// What a Binder opens for another hold's ctx would be closed with that one.
func TestScopedWantsTheCtxOfItsHold(t *testing.T) {
	v := &valve{}
	bind := v.bind()
	var ctxOf func(context.Context) context.Context
	l, err := locker.New(hook(), func(ctx context.Context, h locker.Hold) (int, error) {
		return bind(ctxOf(ctx), h)
	}, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctxOf = func(context.Context) context.Context { return context.Background() }
	_, err = l.Lock(t.Context(), "k")
	wantErr(t, err, locker.ErrNotAcquired, backend.ErrInvalid)
	ctxOf = func(ctx context.Context) context.Context { return context.WithValue(ctx, v, 1) }
	g := mustScope(t, l, "k")
	ctxOf = func(context.Context) context.Context { return g.Context() }
	_, err = l.Lock(t.Context(), "k2")
	wantErr(t, err, backend.ErrInvalid)
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	v.want(t, 1, 1)
	if _, err := locker.New[int](hook(), locker.Scoped[int](nil, nil),
		locker.Config{}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("New with a Scoped of nothing: %v", err)
	}
}

// Several are closed in reverse, and all of them when opening the next fails.
func TestScopedSeveral(t *testing.T) {
	var log []string
	var closing error
	one := func(name string, fail error) locker.Binder[string] {
		return locker.Scoped(
			func(context.Context, locker.Hold) (string, error) {
				log = append(log, "open "+name)
				return name, fail
			},
			func(name string) error { log = append(log, "close "+name); return closing })
	}
	var fail error
	l, err := locker.New(hook(), func(ctx context.Context, h locker.Hold) (string, error) {
		if _, err := one("a", nil)(ctx, h); err != nil {
			return "", err
		}
		return one("b", fail)(ctx, h)
	}, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := locker.Do(t.Context(), l, "k", func(context.Context, string) error {
		return nil
	}); err != nil {
		t.Error(err)
	}
	fail = errors.New("no b")
	_, err = l.Lock(t.Context(), "k")
	wantErr(t, err, fail)
	if got, want := strings.Join(log, ", "),
		"open a, open b, close b, close a, open a, open b, close a"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	log, fail, closing = nil, nil, errors.New("it does not close")
	wantErr(t, locker.Do(t.Context(), l, "k", func(context.Context, string) error {
		return nil
	}), closing)
	if got, want := strings.Join(log, ", "), "open a, open b, close b, close a"; got != want {
		t.Errorf("what fails to close: %s, want %s", got, want)
	}
}
