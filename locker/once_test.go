package locker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// once runs a job that takes no time.
func once(t *testing.T, l *locker.Client[struct{}], every time.Duration) (ran bool) {
	t.Helper()
	called := false
	ran, err := locker.Once(t.Context(), l, "job", every, func(context.Context, struct{}) error {
		called = true
		return nil
	})
	if err != nil || ran != called {
		t.Errorf("Once = %v, %v, and called fn: %v", ran, err, called)
	}
	return ran
}

// ShedLock's lockAtLeastFor: a job that is quicker than the clocks agree is not run by the next
// instance in the same period.
func TestShedLockAtLeastFor(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		for range 3 {
			if !once(t, l, time.Minute) {
				t.Fatal("the first did not run")
			}
			wantHeld(t, b, "job", false) // only the mark is left
			for range 3 {
				if once(t, l, time.Minute) {
					t.Fatal("it ran again at once")
				}
				time.Sleep(19 * time.Second)
			}
			time.Sleep(3 * time.Second)
		}
	})
}

// gocron#841: instances whose clocks differ run a job of a schedule several times in one period, as
// the lock of a short job is free again by the time that the next clock comes to the period.
func TestGocron841(t *testing.T) {
	const (
		instances = 5
		periods   = 20
		period    = time.Minute
	)
	b := hook()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		runs := map[int]int{} // by period of the instances' schedule
		var wg sync.WaitGroup
		for i := range instances {
			wg.Go(func() {
				l, err := locker.New(b, locker.Bare, locker.Config{})
				if err != nil {
					t.Error(err)
					return
				}
				defer l.Close()
				// Its clock is late by up to half a period.
				time.Sleep(time.Duration(i) * period / 2 / (instances - 1))
				for n := range periods {
					start := time.Now()
					_, err := locker.Once(context.Background(), l, "job", period*3/4,
						func(context.Context, struct{}) error {
							mu.Lock()
							runs[n]++
							mu.Unlock()
							// The job is short, or not so short.
							time.Sleep(time.Duration(n) * time.Second)
							return nil
						})
					if err != nil {
						t.Error(err)
					}
					time.Sleep(period - time.Since(start))
				}
			})
		}
		wg.Wait()
		for n := range periods {
			if runs[n] != 1 {
				t.Errorf("period %d: %d runs", n, runs[n])
			}
		}
	})
}

// The time counts from when a run began, also if it failed or panicked; a run that takes longer
// leaves nothing to wait for.
func TestOnceCountsFromTheBeginning(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		broken := errors.New("broken")
		for _, job := range []struct {
			takes time.Duration
			end   func() error
		}{
			{0, func() error { return nil }},
			{40 * time.Second, func() error { return broken }},
			{59 * time.Second, func() error { panic(broken) }},
			{2 * time.Minute, func() error { return nil }},
		} {
			start := time.Now()
			func() {
				defer func() { _ = recover() }()
				ran, err := locker.Once(t.Context(), l, "job", time.Minute,
					func(context.Context, struct{}) error {
						time.Sleep(job.takes)
						return job.end()
					})
				if !ran || err != nil && !errors.Is(err, broken) {
					t.Errorf("Once = %v, %v", ran, err)
				}
			}()
			for !once(t, l, time.Minute) {
				time.Sleep(10 * time.Millisecond)
			}
			want := max(time.Minute, job.takes)
			if took := time.Since(start); took < want || took > want+20*time.Millisecond {
				t.Errorf("a job of %v could run again after %v", job.takes, took)
			}
			time.Sleep(time.Minute)
		}
	})
}

// While one runs it, others wait, and are told that it ran, however long that took: instances of a
// schedule whose job takes longer than every run it once in each period, and not one after the
// other.
func TestOnceThatTakesLongerThanItsTime(t *testing.T) {
	const (
		instances = 3
		periods   = 6
		period    = 4 * time.Second
	)
	// Of the instances' clocks, one after the other.
	for _, late := range []time.Duration{0, time.Second} {
		b := hook()
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var mu sync.Mutex
			runs := 0
			var all sync.WaitGroup
			for i := range instances {
				all.Go(func() {
					l, err := locker.New(b, locker.Bare, locker.Config{})
					if err != nil {
						t.Error(err)
						return
					}
					defer l.Close()
					for n := range periods {
						time.Sleep(time.Until(began.Add(time.Duration(n)*period +
							time.Duration(i)*late)))
						_, err := locker.Once(t.Context(), l, "job", period*3/4,
							func(context.Context, struct{}) error {
								mu.Lock()
								runs++
								mu.Unlock()
								time.Sleep(period * 7 / 8)
								return nil
							})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			if runs != periods {
				t.Errorf("%d runs in %d periods, with clocks %v apart", runs, periods, late)
			}
			if took := time.Since(began); took > periods*period {
				t.Errorf("%d periods of %v took %v", periods, period, took)
			}
		})
	}
}

// Who waited for one that did not run the job, or whose run does not count, runs it.
func TestOnceAfterARunThatDoesNotCount(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{TTL: time.Minute}, func(t *testing.T, l *locker.Client[struct{}]) {
		for name, unlock := range map[string]func(g *locker.Guard[struct{}]) error{
			"forgone": (*locker.Guard[struct{}]).Forgo, "noted": (*locker.Guard[struct{}]).Unlock,
		} {
			g, ok := tryOnce(t, l, time.Second)
			if !ok {
				t.Fatal("early")
			}
			time.AfterFunc(10*time.Second, func() { _ = unlock(g) })
			if ran := once(t, l, time.Second); ran != (name == "forgone") {
				t.Errorf("%s: the job ran %v", name, ran)
			}
			time.Sleep(time.Second)
		}
		g := mustLock(t, l, "job") // of somebody who does not run it
		time.AfterFunc(10*time.Second, func() { _ = g.Unlock() })
		if !once(t, l, time.Second) {
			t.Error("who held was taken for one who ran the job")
		}
	})
}

// Each call decides by its own time, as that of a job may be changed.
func TestOnceWhoseTimeWasChanged(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		for _, step := range []struct {
			every time.Duration
			runs  bool
		}{
			{time.Hour, true},
			{time.Second, true},
			{time.Hour, false},
			{time.Second, true},
			{2 * time.Second, false},
		} {
			if ran := once(t, l, step.every); ran != step.runs {
				t.Errorf("with %v it ran: %v", step.every, ran)
			}
			time.Sleep(1200 * time.Millisecond)
		}
	})
}

// While one runs it, others wait: if it crashes, they run it.
func TestOnceCrash(t *testing.T) {
	for _, crash := range []bool{false, true} {
		b := hook()
		bubble(t, b, locker.Config{TTL: time.Minute},
			func(t *testing.T, l *locker.Client[struct{}]) {
				c := backend.Claim{
					Key: "job", Owner: backend.NewOwner(), TTL: time.Minute,
					NotBefore: time.Hour,
				}
				if _, err := b.TryAcquire(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				if !crash {
					time.AfterFunc(time.Second, func() {
						_, _ = b.Release(context.Background(), c)
					})
				}
				if ran := once(t, l, time.Hour); ran != crash {
					t.Errorf("the other crashed: %v, and it ran here: %v", crash, ran)
				}
			})
	}
}

// Marks are left by those who ran: not by a wait that was cancelled, a binder that failed, or a
// lock that was lost.
func TestOnceLeavesNoMarkWithoutARun(t *testing.T) {
	b, renew, _ := switchable()
	bubble(t, b, locker.Config{TTL: time.Minute}, func(t *testing.T, l *locker.Client[struct{}]) {
		fn := func(context.Context, struct{}) error { t.Error("fn ran"); return nil }
		b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
			_, _ = b.Backend.TryAcquire(ctx, c) // granted, and not heard of
			return backend.Grant{}, errSilence
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ran, err := locker.Once(ctx, l, "job", time.Hour, fn)
		wantErr(t, err, context.DeadlineExceeded)
		b.acquire = nil
		unbound, newErr := locker.New(b, func(context.Context, locker.Hold) (int, error) {
			return 0, errSilence
		}, locker.Config{})
		if newErr != nil {
			t.Fatal(newErr)
		}
		defer unbound.Close()
		again, err := locker.Once(t.Context(), unbound, "job", time.Hour,
			func(context.Context, int) error {
				return fn(nil, struct{}{})
			})
		wantErr(t, err, errSilence)
		lost, err := locker.Once(t.Context(), l, "job", time.Hour,
			func(ctx context.Context, _ struct{}) error {
				renew(func(context.Context, backend.Claim) error { return backend.ErrLost })
				<-ctx.Done()
				return nil
			})
		wantErr(t, err, locker.ErrLost)
		renew(nil)
		if ran || again || !lost {
			t.Errorf("ran: %v, %v, %v, want false, false, true", ran, again, lost)
		}
		time.Sleep(time.Minute)
		if !once(t, l, time.Hour) {
			t.Error("a mark was left by who did not run")
		}
	})
}

func TestOnceRefuses(t *testing.T) {
	fn := func(context.Context, struct{}) error { return nil }
	l, err := locker.New(plain(), locker.Bare, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = locker.Once(t.Context(), l, "job", time.Hour, fn)
	wantErr(t, err, errors.ErrUnsupported, locker.ErrNotAcquired)
	m, err := locker.New(hook(), locker.Bare, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for what, err := range map[string]error{
		"no fn":    second(locker.Once(t.Context(), m, "job", time.Hour, nil)),
		"no time":  second(locker.Once(t.Context(), m, "job", 0, fn)),
		"too long": second(locker.Once(t.Context(), m, "job", 1000*backend.MaxTTL, fn)),
		"shared":   second(locker.Once(t.Context(), m, "job", time.Hour, fn, locker.Shared())),
		"no key":   second(locker.Once(t.Context(), m, "", time.Hour, fn)),
	} {
		if !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second(_ bool, err error) error { return err }

// A run that says that it was cut off does not count, although its lock was good until Unlock.
func TestOnceDoesNotCountARunThatWasCutOff(t *testing.T) {
	b := membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i, c := range []struct {
		err error
		ran bool
	}{
		{fmt.Errorf("cut off: %w", locker.ErrLost), true},
		{locker.ErrMaxHold, true},
		{context.Canceled, true},
		{nil, false},
	} {
		ran, _ := locker.Once(t.Context(), l, "job", time.Hour,
			func(context.Context, struct{}) error {
				return c.err
			})
		if ran != c.ran {
			t.Errorf("run %d: %v, want %v", i+1, ran, c.ran)
		}
	}
}

// What a scheduler with several instances makes of it: the job runs once in each period, however
// short it is, and whether it fails or not. (By TryLock alone it ran two or three times in each.)
func TestSchedulerRunsAJobOnceAPeriod(t *testing.T) {
	const (
		instances = 3
		periods   = 6
		period    = time.Hour
	)
	b := hook()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		runs := map[int]int{}
		var all sync.WaitGroup
		for i := range instances {
			all.Go(func() {
				l, err := locker.New(b, locker.Bare, locker.Config{})
				if err != nil {
					t.Error(err)
					return
				}
				defer l.Close()
				var s schedulerLocker = perPeriod{l, period * 3 / 4}
				time.Sleep(time.Duration(i) * period / 2 / (instances - 1)) // its clock is late
				for n := range periods {
					if lock, err := s.Lock(t.Context(), "job"); err == nil {
						mu.Lock()
						runs[n]++
						mu.Unlock()
						if err := lock.Unlock(t.Context()); err != nil {
							t.Error(err)
						}
					} else if !errors.Is(err, locker.ErrEarly) {
						t.Error(err)
					}
					time.Sleep(period)
				}
			})
		}
		all.Wait()
		for n := range periods {
			if runs[n] != 1 {
				t.Errorf("period %d: %d runs", n, runs[n])
			}
		}
	})
}

// tryOnce is a try of a job; ok says that it is to be run.
func tryOnce(t *testing.T, l locker.Locker[struct{}],
	every time.Duration,
) (g *locker.Guard[struct{}], ok bool) {
	t.Helper()
	g, err := l.TryLock(t.Context(), "job", locker.OncePer(every))
	if err == nil {
		return g, true
	}
	wantErr(t, err, locker.ErrNotAcquired, locker.ErrEarly)
	return nil, false
}

// Within the period the error says how much of it is left, which counts from when the run began.
func TestOncePer(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{TTL: time.Minute}, func(t *testing.T, l *locker.Client[struct{}]) {
		for range 2 {
			g, ok := tryOnce(t, l, time.Hour)
			if !ok {
				t.Fatal("early")
			}
			time.Sleep(20 * time.Minute) // the job is slow
			_, err := l.TryLock(t.Context(), "job", locker.OncePer(time.Hour))
			wantErr(t, err, backend.ErrHeld)
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
			wantHeld(t, b, "job", false)
			_ = mustLock(t, l, "job").Unlock() // others do not heed it
			time.Sleep(10 * time.Minute)
			// Its own counts.
			if g, err := l.TryLock(t.Context(), "job",
				locker.OncePer(29*time.Minute)); err != nil || g.Forgo() != nil {
				t.Errorf("TryLock 30 minutes after the run began = %v", err)
			}
			_, err = l.TryLock(t.Context(), "job", locker.OncePer(time.Hour))
			var early *locker.EarlyError
			if !errors.As(err, &early) || early.RetryAfter != 30*time.Minute {
				t.Errorf("TryLock = %v, want 30 minutes left", err)
			}
			wantErr(t, err, locker.ErrNotAcquired, locker.ErrEarly)
			if once(t, l, time.Hour) {
				t.Error("Once does not heed it")
			}
			time.Sleep(30 * time.Minute)
		}
		if !once(t, l, time.Hour) {
			t.Error("the period is over")
		}
		if _, ok := tryOnce(t, l, time.Hour); ok {
			t.Error("it does not heed Once")
		}
	})
}

// The period is given back by Forgo, and not used up by who did not run: a binder that failed, a
// hold that was lost, or a try whose answer was lost.
func TestOncePerLeavesNoMarkWithoutARun(t *testing.T) {
	b, renew, release := switchable()
	bubble(t, b, locker.Config{TTL: time.Minute}, func(t *testing.T, l *locker.Client[struct{}]) {
		run := func(what string) *locker.Guard[struct{}] {
			t.Helper()
			g, ok := tryOnce(t, l, time.Hour)
			if !ok {
				t.Fatalf("a mark was left by %s", what)
			}
			return g
		}
		g := run("nobody")
		for range 2 {
			if err := g.Forgo(); err != nil {
				t.Error(err)
			}
		}
		if err := g.Unlock(); err != nil { // too late for another outcome
			t.Error(err)
		}
		unbound, err := locker.New(b, func(context.Context, locker.Hold) (int, error) {
			return 0, errSilence
		}, locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer unbound.Close()
		_, err = unbound.TryLock(t.Context(), "job", locker.OncePer(time.Hour))
		wantErr(t, err, errSilence)
		g = run("a binder that failed")
		renew(func(context.Context, backend.Claim) error { return errSilence })
		<-g.Lost()
		renew(nil)
		wantErr(t, g.Unlock(), locker.ErrLost)
		time.Sleep(time.Minute)
		g = run("a hold that was lost")
		// is executed, and the answer lost.
		release(func(ctx context.Context, c backend.Claim) error {
			_, _ = b.Backend.Release(ctx, c)
			release(nil)
			return errSilence
		})
		if err := g.Forgo(); err != nil {
			t.Error(err)
		}
		b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
			_, _ = b.Backend.TryAcquire(ctx, c)
			return backend.Grant{}, errSilence
		}
		_, err = l.TryLock(t.Context(), "job", locker.OncePer(time.Hour))
		wantErr(t, err, locker.ErrNotAcquired, errSilence)
		b.acquire = nil
		g = run("a try without an answer")
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		if err := g.Forgo(); err != nil { // too late
			t.Error(err)
		}
		if _, ok := tryOnce(t, l, time.Hour); ok {
			t.Error("Forgo after Unlock took the mark away")
		}
		wantErr(t, (*locker.Guard[int])(nil).Forgo(), locker.ErrUnlocked)
	})
}

// OncePer is refused by name where it makes no sense, before the store is asked.
func TestOncePerRefuses(t *testing.T) {
	b, unable := hook(), plain()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		m, err := locker.New(unable, locker.Bare, locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		per := locker.OncePer(time.Hour)
		fn := func(context.Context, struct{}) error { t.Error("fn ran"); return nil }
		for name, err := range map[string]error{
			"Lock":      not(l.Lock(t.Context(), "job", per)),
			"Do":        locker.Do(t.Context(), l, "job", fn, per),
			"Lead":      locker.Lead(t.Context(), l, "job", fn, per),
			"All":       not(locker.All(t.Context(), l, []string{"a", "b"}, per)),
			"Shared":    not(l.TryLock(t.Context(), "job", per, locker.Shared())),
			"Permit":    not(l.TryLock(t.Context(), "job", locker.Permit(2), per)),
			"Reentrant": not(l.TryLock(t.Context(), "job", per, locker.Reentrant("o"))),
			"no time":   not(l.TryLock(t.Context(), "job", locker.OncePer(0))),
			"negative":  not(l.TryLock(t.Context(), "job", locker.OncePer(-1))),
			"too long":  not(l.TryLock(t.Context(), "job", locker.OncePer(backend.MaxNotBefore+1))),
			"quorum":    not(m.TryLock(t.Context(), "job", per)),
		} {
			wantErr(t, err, locker.ErrNotAcquired)
			kind := backend.ErrInvalid
			if name == "quorum" {
				kind = errors.ErrUnsupported
			}
			if !errors.Is(err, kind) || !strings.Contains(err.Error(), "OncePer") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if b.acquires.Load()+unable.acquires.Load() != 0 {
			t.Error("a store was asked")
		}
	})
}
