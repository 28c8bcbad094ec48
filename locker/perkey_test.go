package locker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// A page is what a test keeps for each key. It is not safe for concurrent use.
type page struct {
	key   string
	no    int // in the order in which they were opened
	lines int
}

// pages opens them, and counts.
type pages struct {
	mu     sync.Mutex
	opened []*page
	before func(key string) error // nil: nothing
}

func (p *pages) open(key string) (*page, error) {
	if p.before != nil {
		if err := p.before(key); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pg := &page{key: key, no: len(p.opened) + 1}
	p.opened = append(p.opened, pg)
	return pg, nil
}

// perKey runs f in a bubble with a Client whose guards protect pages.
func perKey(t *testing.T, b backend.Backend, cfg locker.Config,
	f func(t *testing.T, l *locker.Client[*page], p *pages), opts ...locker.PerKeyOption,
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pages{}
		l, err := locker.New(b, locker.PerKey(p.open, opts...), cfg)
		if err != nil {
			t.Fatal(err)
		}
		f(t, l, p)
		if err := l.Shutdown(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// lockPage locks key, and fails unless its guard protects the page that was opened as number no.
func lockPage(t *testing.T, l locker.Locker[*page], key string, no int,
	opts ...locker.Option,
) *locker.Guard[*page] {
	t.Helper()
	g, err := l.Lock(t.Context(), key, opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", key, err)
	}
	pg, err := g.Value()
	if err != nil {
		t.Fatalf("Value: %v", err)
	}
	if pg.key != key || pg.no != no {
		t.Errorf("the guard of %q protects page %d of %q, want page %d", key, pg.no, pg.key, no)
	}
	return g
}

// Two keys and sixteen goroutines: each key's page is used by one of them at a time, without a lock
// of its own (the race detector looks on), whether the lease is handed on among them or not.
func TestPerKeyHasOneUserAtATime(t *testing.T) {
	const turns = 50
	for name, cfg := range map[string]locker.Config{
		"handed on": {},
		"each asks": {Wait: waiting.Config{Passes: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := membackend.New()
			defer b.Close()
			var p pages
			l, err := locker.New(b, locker.PerKey(p.open), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var all sync.WaitGroup
			for i := range 16 {
				all.Go(func() {
					for range turns {
						if err := locker.Do(t.Context(), l, fmt.Sprint("sku-", i%2),
							func(_ context.Context, pg *page) error {
								pg.lines++
								return nil
							}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			if len(p.opened) != 2 {
				t.Fatalf("%d pages were opened for 2 keys", len(p.opened))
			}
			for _, pg := range p.opened {
				if pg.lines != 8*turns {
					t.Errorf("%q has %d lines, want %d", pg.key, pg.lines, 8*turns)
				}
			}
		})
	}
}

// A value is kept for its key: by Lock and TryLock, with whatever TTL, and after a binder above it
// that failed.
func TestPerKeyKeeps(t *testing.T) {
	perKey(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[*page], p *pages) {
		for range 3 {
			_ = lockPage(t, l, "k", 1).Unlock()
			_ = lockPage(t, l, "k", 1, locker.TTL(time.Hour)).Unlock()
			g, err := l.TryLock(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if pg, _ := g.Value(); pg != p.opened[0] {
				t.Error("TryLock has another value")
			}
			_ = g.Unlock()
			time.Sleep(24 * time.Hour)
		}
		_ = lockPage(t, l, "other", 2).Unlock()
		_ = lockPage(t, l, "k", 1).Unlock()
	})
}

// After a hold that ended other than by Unlock the next has a new value, and keeps that: what the
// old one's late Unlock brings does not come back.
func TestPerKeyAfterALoss(t *testing.T) {
	b, renew, release := switchable()
	gone := func(context.Context, backend.Claim) error { return backend.ErrLost }
	silent := func(ctx context.Context, _ backend.Claim) error { <-ctx.Done(); return errSilence }
	for name, end := range map[string]func(t *testing.T, l *locker.Client[*page],
		g *locker.Guard[*page]) (late func()){
		"lost": func(t *testing.T, _ *locker.Client[*page], g *locker.Guard[*page]) func() {
			renew(gone)
			<-g.Context().Done()
			renew(nil)
			time.Sleep(time.Minute) // what the store has ends as well
			return func() { wantErr(t, g.Unlock(), locker.ErrLost) }
		},
		"ran out": func(t *testing.T, _ *locker.Client[*page], g *locker.Guard[*page]) func() {
			renew(silent)
			<-g.Context().Done()
			renew(nil)
			return func() { wantErr(t, g.Unlock(), locker.ErrLost) }
		},
		"ran out, and unlocked before the next": func(t *testing.T, _ *locker.Client[*page],
			g *locker.Guard[*page],
		) func() {
			renew(silent)
			<-g.Context().Done()
			renew(nil)
			wantErr(t, g.Unlock(), locker.ErrLost)
			return func() {}
		},
		"by force": func(t *testing.T, l *locker.Client[*page], g *locker.Guard[*page]) func() {
			if _, err := l.ForceRelease(t.Context(), "k", g.Hold().Token); err != nil {
				t.Fatal(err)
			}
			wantErr(t, g.Unlock(), locker.ErrLost) // learns it
			return func() {}
		},
		"too long": func(_ *testing.T, _ *locker.Client[*page], g *locker.Guard[*page]) func() {
			<-g.Context().Done()
			time.Sleep(time.Minute)
			return func() { _ = g.Unlock() }
		},
		"refuted while it is unlocked": func(t *testing.T, _ *locker.Client[*page],
			g *locker.Guard[*page],
		) func() {
			asked := make(chan struct{})
			renew(func(ctx context.Context, _ backend.Claim) error {
				close(asked)
				<-ctx.Done()
				return backend.ErrLost
			})
			release(func(context.Context, backend.Claim) error { return errSilence })
			<-asked
			_ = g.Unlock()
			renew(nil)
			release(nil)
			time.Sleep(time.Minute)
			return func() {}
		},
	} {
		for _, later := range []bool{false, true} { // than the next one's Unlock
			for _, idle := range []time.Duration{0, 24 * time.Hour} {
				t.Run(fmt.Sprintf("%s, later %v, kept for %v", name, later, idle),
					func(t *testing.T) {
						perKey(t, b, locker.Config{TTL: time.Minute},
							func(t *testing.T, l *locker.Client[*page], _ *pages) {
								opt := locker.MaxHold(0)
								if name == "too long" {
									opt = locker.MaxHold(time.Second)
								}
								_ = lockPage(t, l, "k", 1).Unlock()
								unlock := end(t, l, lockPage(t, l, "k", 1, opt))
								g := lockPage(t, l, "k", 2)
								if !later {
									unlock()
								}
								if _, err := g.Value(); err != nil {
									t.Error(err)
								}
								_ = g.Unlock()
								unlock()
								_ = lockPage(t, l, "k", 2).Unlock()
							}, locker.PerKeyIdle(idle))
					})
			}
		}
	}
}

// A renewal that Unlock waits for says that the hold is gone: its value is nobody's before the
// release is answered either, as the key may be the next one's by then.
func TestPerKeyWhileALossIsReleased(t *testing.T) {
	b, renew, release := switchable()
	perKey(t, b, locker.Config{TTL: time.Minute},
		func(t *testing.T, l *locker.Client[*page], _ *pages) {
			asked, releasing, resume := make(chan struct{}), make(chan struct{}),
				make(chan struct{})
			renew(func(ctx context.Context, _ backend.Claim) error {
				close(asked)
				<-ctx.Done()
				return backend.ErrLost
			})
			release(func(ctx context.Context, c backend.Claim) error {
				close(releasing)
				<-resume
				return storetest.Release(ctx, b.Backend, c)
			})
			g := lockPage(t, l, "k", 1)
			<-asked
			if _, err := b.ForceRelease(t.Context(), "k", g.Hold().Token); err != nil {
				t.Fatal(err)
			}
			unlocked := make(chan error, 1)
			go func() { unlocked <- g.Unlock() }()
			<-releasing
			renew(nil)
			release(nil)
			next := lockPage(t, l, "k", 2)
			close(resume)
			wantErr(t, <-unlocked, locker.ErrLost)
			if err := next.Unlock(); err != nil {
				t.Error(err)
			}
			_ = lockPage(t, l, "k", 2).Unlock()
		})
}

// An Unlock that the store did not answer is an Unlock.
func TestPerKeyAfterAnUnlockWithoutAnAnswer(t *testing.T) {
	b, _, release := switchable()
	perKey(t, b, locker.Config{TTL: time.Minute},
		func(t *testing.T, l *locker.Client[*page], _ *pages) {
			g := lockPage(t, l, "k", 1)
			release(func(context.Context, backend.Claim) error { return errSilence })
			if err := g.Unlock(); err == nil || errors.Is(err, locker.ErrLost) {
				t.Errorf("Unlock = %v", err)
			}
			release(nil)
			_ = lockPage(t, l, "k", 1).Unlock()
		})
}

// A hold that is lost while its value is opened does not keep it, and Lock says so. Meanwhile
// another may be opened.
func TestPerKeyLostWhileItIsOpened(t *testing.T) {
	b, renew, _ := switchable()
	perKey(t, b, locker.Config{TTL: time.Minute},
		func(t *testing.T, l *locker.Client[*page], p *pages) {
			slow, calls := make(chan struct{}), atomic.Int64{}
			p.before = func(string) error {
				if calls.Add(1) == 1 {
					<-slow
				}
				return nil
			}
			renew(func(context.Context, backend.Claim) error { return errSilence })
			failed := make(chan error, 1)
			go func() {
				_, err := l.Lock(context.Background(), "k")
				failed <- err
			}()
			time.Sleep(2 * time.Minute)
			renew(nil)
			g := lockPage(t, l, "k", 1)
			close(slow)
			wantErr(t, <-failed, locker.ErrNotAcquired, locker.ErrLost)
			_ = g.Unlock()
			_ = lockPage(t, l, "k", 1).Unlock() // and not that of the slow one, the second
		})
}

// What does not open is not kept.
func TestPerKeyThatDoesNotOpen(t *testing.T) {
	b := hook()
	perKey(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[*page], p *pages) {
		p.before = func(string) error { return errSilence }
		_, err := l.Lock(t.Context(), "k")
		wantErr(t, err, locker.ErrNotAcquired, errSilence)
		p.before = func(string) error { panic(errSilence) }
		func() {
			defer func() { _ = recover() }()
			_, _ = l.Lock(t.Context(), "k")
		}()
		synctest.Wait()
		wantHeld(t, b, "k", false)
		p.before = nil
		_ = lockPage(t, l, "k", 1).Unlock()
	})
}

// With PerKeyIdle a value is dropped when nobody has had it for so long, and not earlier.
func TestPerKeyIdle(t *testing.T) {
	perKey(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[*page], _ *pages) {
		for range 3 {
			g := lockPage(t, l, "k", 1)
			time.Sleep(time.Hour) // it is used
			_ = g.Unlock()
			time.Sleep(time.Minute - time.Millisecond)
		}
		for range 3 {
			_ = lockPage(t, l, "k", 1).Unlock()
			time.Sleep(40 * time.Second)
		}
		g := lockPage(t, l, "k", 1)
		time.Sleep(time.Minute)
		_ = g.Unlock()
		time.Sleep(time.Minute + time.Millisecond)
		_ = lockPage(t, l, "k", 2).Unlock()
	}, locker.PerKeyIdle(time.Minute))
}

// One Binder in several Clients: each has values of its own, as neither another namespace nor
// another backend excludes.
func TestPerKeyOfTwoClients(t *testing.T) {
	var p pages
	bind := locker.PerKey(p.open)
	b, other := membackend.New(), membackend.New()
	defer b.Close()
	defer other.Close()
	for no, of := range []struct {
		b   backend.Backend
		cfg locker.Config
	}{
		{b, locker.Config{}},
		{b, locker.Config{Namespace: "n"}},
		{other, locker.Config{}},
		{b, locker.Config{}},
	} {
		l, err := locker.New(of.b, bind, of.cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:gocritic // all are open together
		g := lockPage(t, l, "k", no+1)
		if no == 0 {
			_ = g.Unlock() // of the same store and namespace as the last
		} else {
			defer func() { _ = g.Unlock() }() //nolint:gocritic // all hold together
		}
	}
}

// Locks that several hold are refused before the store is asked, and by a binder that calls
// PerKey's when it does. So is one that comes from another process.
func TestPerKeyRefuses(t *testing.T) {
	b := hook()
	perKey(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[*page], p *pages) {
		m, err := locker.New(b, func(ctx context.Context, h locker.Hold) (*page, error) {
			return locker.PerKey(p.open)(ctx, h)
		}, locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		ticket := locker.Ticket{Key: "k", Owner: "o", Hold: "h", TTL: time.Minute}
		for name, try := range map[string]func(l *locker.Client[*page]) error{
			"shared": func(l *locker.Client[*page]) error {
				return not(l.Lock(t.Context(), "k", locker.Shared()))
			},
			"permit": func(l *locker.Client[*page]) error {
				return not(l.TryLock(t.Context(), "k", locker.Permit(1)))
			},
			"reentrant": func(l *locker.Client[*page]) error {
				return not(l.Lock(t.Context(), "k", locker.Reentrant("o")))
			},
			"adopt": func(l *locker.Client[*page]) error {
				return not(l.Adopt(t.Context(), ticket))
			},
			"all": func(l *locker.Client[*page]) error {
				return not(locker.All(t.Context(), l, []string{"k"}, locker.Shared()))
			},
		} {
			var invalid *backend.InvalidError
			if err := try(l); !errors.As(err, &invalid) || invalid.Field != "mode" ||
				!errors.Is(err, locker.ErrNotAcquired) {
				t.Errorf("%s: %v", name, err)
			}
			if n := b.acquires.Load(); n != 0 {
				t.Fatalf("%s: the store was asked %d times", name, n)
			}
			if name == "adopt" {
				continue // there is nothing to adopt
			}
			if err := try(m); !errors.As(err, &invalid) || invalid.Field != "mode" {
				t.Errorf("%s, by a binder that calls it: %v", name, err)
			}
			wantHeld(t, b, "k", false)
			b.acquires.Store(0)
		}
		if len(p.opened) != 0 {
			t.Errorf("%d were opened", len(p.opened))
		}
		var invalid *backend.InvalidError
		if _, err := locker.PerKey(p.open)(t.Context(), locker.Hold{Key: "k"}); !errors.As(err,
			&invalid) {
			t.Errorf("without a hold: %v", err)
		}
		for name, bind := range map[string]locker.Binder[*page]{
			"no open": locker.PerKey[*page](nil), "negative": locker.PerKey(p.open,
				locker.PerKeyIdle(-1)),
		} {
			if _, err := locker.New(b, bind, locker.Config{}); !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%s: New = %v", name, err)
			}
		}
	})
}

func not[T any](_ T, err error) error { return err }

// A binder may put PerKey's value together with what is of the hold, and a value may be nil.
func TestPerKeyInABinder(t *testing.T) {
	type both struct {
		why   error
		page  *page
		token uint64
	}
	var p pages
	whys, all := locker.PerKey(func(string) (error, error) {
		return nil, nil
	}), locker.PerKey(p.open)
	b := membackend.New()
	defer b.Close()
	l, err := locker.New(b, func(ctx context.Context, h locker.Hold) (v both, err error) {
		if v.why, err = whys(ctx, h); err == nil {
			v.page, err = all(ctx, h)
		}
		v.token = h.Token
		return v, err
	}, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 3 {
		if err := locker.Do(t.Context(), l, "k", func(_ context.Context, v both) error {
			v.page.lines++
			if v.why != nil || v.token == 0 {
				t.Errorf("%+v", v)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.opened) != 1 || p.opened[0].lines != 3 {
		t.Errorf("opened: %d", len(p.opened))
	}
}
