package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/linear"
	"github.com/holdfast-go/holdfast/locker"
)

var storeRules = []rule{
	{
		name: "store/update", run: storeUpdate, needs: backend.Capabilities{
			State:   true,
			Fencing: true,
		},
		why: "Load, change and save is one step for everybody else: no update is lost, whoever " +
			"comes between.",
	},
	{
		name: "store/lost", run: storeLost, needs: backend.Capabilities{State: true, Fencing: true},
		why: "Who lost the lock saves nothing, whether he knows or not: so a paused holder does " +
			"no harm, and no token is to be checked.",
	},
	{
		name: "store/refused", run: storeRefused, once: true,
		why: "A program learns when it starts that its backend keeps no values or marks, and not " +
			"by losing one.",
	},
	{
		name: "once/period", run: oncePeriod, needs: backend.Capabilities{NotBefore: true},
		slow: true,
		why: "A job that many instances try runs once in each period, however short it is and " +
			"whatever their clocks say" +
			" (ShedLock's lockAtLeastFor, gocron#841).",
	},
	{
		name: "once/after-locks", run: onceAfterLocks, needs: backend.Capabilities{NotBefore: true},
		why: "Locks of the same key between two tries of a job are none of the job's business, " +
			"also if one client does both.",
	},
	{
		name: "once/waited", run: onceWaited, needs: backend.Capabilities{NotBefore: true},
		why: "Instances that are to run a job once, and wait for the one that does, are told " +
			"that it ran, also if it took longer" +
			" than its time; else they run it one after the other.",
	},
	{
		name: "once/try", run: onceTry, needs: backend.Capabilities{NotBefore: true},
		why: "A scheduler that asks before each run is told whether the job ran in this period, " +
			"by whichever instance; a job" +
			" that was not done, or whose process crashed, is done by another.",
	},
}

// store returns a Store of ints on b, which is closed at the end.
func (e *env) store(b backend.Backend) *locker.Store[int] {
	e.Helper()
	s, err := locker.NewStore(b, locker.JSON[int](), locker.Config{TTL: e.long, Logger: discard})
	if err != nil {
		e.Fatalf("locker.NewStore = %v", err)
	}
	e.later(func() {
		if err := s.Close(); err != nil {
			e.Errorf("Store: Close = %v", err)
		}
	})
	return s
}

// holds fails unless the value of key is want, and returns its token.
func (e *env) holds(s *locker.Store[int], key string, want int) (token uint64) {
	e.Helper()
	failed := e.Failed() // as by an Update without an answer
	got, token, err := s.Get(e.ctx, key)
	switch {
	case err == nil && got != want && !failed:
		e.broken("Get = %d, want %d", got, want)
	case err != nil || got != want:
		e.Errorf("Get = %d, %v, want %d", got, err, want)
	}
	return token
}

func increment(_ context.Context, v int) (int, error) { return v + 1, nil }

func storeUpdate(e *env) {
	stores := []*locker.Store[int]{e.store(e.open()), e.store(e.open())}
	key := e.key("k")
	if token := e.holds(stores[0], key, 0); token != 0 {
		e.Errorf("token %d of a value that was never saved", token)
	}
	const workers, rounds = 6, 4
	start, calls := time.Now(), make([][]linear.Call, workers)
	parallel(workers, func(i int) {
		s, last := stores[i%2], uint64(0)
		for range rounds {
			op, began := linear.Op{Verb: linear.Swap, Key: key}, time.Since(start)
			if err := s.Update(e.ctx, key, func(_ context.Context, v int) (int, error) {
				op.Old, op.Value = v, v+1
				return v + 1, nil
			}); err != nil {
				e.Errorf("Update = %v", err)
				return
			}
			calls[i] = append(calls[i], linear.Call{Op: op, Begin: began, End: time.Since(start)})
			_, token, err := s.Get(e.ctx, key)
			if err != nil || token <= last {
				e.Errorf("Get after an Update: token %d after %d, %v", token, last, err)
			}
			last = token
		}
	})
	e.explained(linear.RegisterModel(), slices.Concat(calls...))
	e.holds(stores[1], key, workers*rounds)
	e.is("Update whose function fails",
		stores[0].Update(e.ctx, key, func(context.Context, int) (int, error) {
			return 0, context.Canceled
		}), context.Canceled)
	e.holds(stores[1], key, workers*rounds)
	// A plain lock of the same key leaves the value.
	g := e.lock(e.locker(e.open(), locker.Config{}), key)
	e.unlock(g)
	e.holds(stores[0], key, workers*rounds)
}

// lastClaim knows the last claim that was made through it.
type lastClaim struct {
	backend.Backend
	claim backend.Claim
}

func (l *lastClaim) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	l.claim = c
	return l.Backend.TryAcquire(ctx, c)
}

func storeLost(e *env) {
	holder := &lastClaim{Backend: e.open()}
	a, b := e.store(holder), e.store(e.open())
	key := e.key("k")
	if err := a.Update(e.ctx, key, increment); err != nil {
		e.Fatalf("Update = %v", err)
	}
	for _, another := range []bool{false, true} {
		want, _, err := b.Get(e.ctx, key)
		if err != nil {
			e.Fatalf("Get = %v", err)
		}
		err = a.Update(e.ctx, key, func(_ context.Context, v int) (int, error) {
			e.release(holder.Backend, holder.claim) // behind its back
			if another {
				if err := b.Update(e.ctx, key, increment); err != nil {
					e.Errorf("Update by another = %v", err)
				}
			}
			return v + 1000, nil
		})
		e.is("Update of a holder that lost the lock", err, locker.ErrLost)
		if another {
			want++
		}
		e.holds(b, key, want)
	}
}

func storeRefused(e *env) {
	b := e.open()
	s, err := locker.NewStore(b, locker.JSON[int](), locker.Config{})
	switch {
	case !e.caps.State:
		e.is("NewStore on a backend that keeps no values", err, errors.ErrUnsupported)
	case err != nil:
		e.Errorf("NewStore = %v", err)
	default:
		_ = s.Close()
	}
	if !e.caps.NotBefore {
		l := e.locker(b, locker.Config{})
		_, err := locker.Once(e.ctx, l, e.key("k"), time.Hour,
			func(context.Context, struct{}) error {
				return nil
			})
		e.is("Once on a backend that keeps no marks", err, errors.ErrUnsupported)
		_, err = l.TryLock(e.ctx, e.key("k"), locker.OncePer(time.Hour))
		e.is("TryLock with OncePer on a backend that keeps no marks", err, errors.ErrUnsupported)
	}
}

func onceAfterLocks(e *env) {
	l := e.locker(e.open(), locker.Config{})
	key := e.key("job")
	for i := range 3 {
		ran, err := locker.Once(e.ctx, l, key, time.Hour, func(context.Context, struct{}) error {
			return nil
		})
		if err != nil || ran != (i == 0) {
			e.Errorf("Once ran: %v, %v, after %d locks", ran, err, 3*i)
		}
		for range 3 {
			e.unlock(e.lock(l, key))
		}
	}
	e.ran(l, key)
}

// ran must find that the job has run within the last hour.
func (e *env) ran(l *locker.Client[struct{}], key string) {
	e.Helper()
	g, err := l.TryLock(e.ctx, key, locker.OncePer(time.Hour))
	if err == nil {
		e.unlock(g)
	}
	var early *locker.EarlyError
	e.is("TryLock with OncePer after the job ran", err, locker.ErrNotAcquired)
	if !errors.Is(err, locker.ErrEarly) || !errors.As(err, &early) {
		e.Fatalf("TryLock with OncePer after the job ran = %v, want a *locker.EarlyError", err)
	}
	if early.RetryAfter > time.Hour+2*time.Second || early.RetryAfter < time.Hour-2*patience {
		e.Errorf("%v are left of an hour", early.RetryAfter)
	}
}

// waits is an observer that is told of waits.
type waits chan struct{}

func (w waits) Begin(ctx context.Context, op string,
	_ locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	if op == locker.OpWait {
		w <- struct{}{}
	}
	return ctx, func(locker.Hold, error) {}
}

func onceWaited(e *env) {
	const others, every = 3, time.Millisecond
	waiting, a := make(waits, others), e.locker(e.open(), locker.Config{})
	for _, count := range []bool{true, false} {
		key := e.key(fmt.Sprint(count))
		g, err := a.TryLock(e.ctx, key, locker.OncePer(every))
		if err != nil {
			e.Fatalf("TryLock with OncePer = %v", err)
		}
		var runs atomic.Int64
		var all sync.WaitGroup
		for range others {
			b := e.locker(e.open(), locker.Config{Observer: waiting})
			all.Go(func() {
				ran, err := locker.Once(e.ctx, b, key, every,
					func(context.Context, struct{}) error {
						return nil
					})
				if err != nil {
					e.Errorf("Once = %v", err)
				}
				if ran {
					runs.Add(1)
				}
			})
		}
		for range others {
			select {
			case <-waiting:
			case <-e.ctx.Done():
				e.Errorf("who calls Once while another runs the job does not wait")
			}
		}
		e.pause(2 * every)
		end, want := g.Forgo, int64(1)
		if count {
			end, want = g.Unlock, 0
		}
		if err := end(); err != nil {
			e.Errorf("the end of the run = %v", err)
		}
		all.Wait()
		if n := runs.Load(); n != want {
			e.Errorf("of %d who waited while the job ran %d ran it again, want %d; it was noted "+
				"to have run: %v", others, n, want, count)
		}
		e.pause(every)
	}
}

func onceTry(e *env) {
	a, b := e.open(), e.open()
	one, two := e.locker(a, locker.Config{}), e.locker(b, locker.Config{})
	key := e.key("job")
	run := func(l *locker.Client[struct{}], what string) *locker.Guard[struct{}] {
		e.Helper()
		g, err := l.TryLock(e.ctx, key, locker.OncePer(time.Hour))
		if err != nil {
			e.Fatalf("TryLock with OncePer, %s = %v", what, err)
		}
		e.later(func() { _ = g.Forgo() })
		return g
	}
	g := run(one, "of a job that never ran")
	if other, err := two.TryLock(e.ctx, key, locker.OncePer(time.Hour)); err == nil {
		e.unlock(other)
		e.Errorf("TryLock with OncePer succeeded while another runs the job")
	} else {
		e.is("TryLock with OncePer while another runs the job", err, backend.ErrHeld)
	}
	if err := g.Forgo(); err != nil {
		e.Errorf("Forgo = %v", err)
	}
	e.unlock(run(two, "after Forgo"))
	for _, l := range []*locker.Client[struct{}]{one, two} {
		e.ran(l, key)
	}
	key = e.key("crash")
	c := e.brief(key)
	c.NotBefore = time.Hour
	e.acquire(a, c) // and is never heard of again
	e.await("the lease of a process that crashed to end", 4*e.short+patience, func() bool {
		g, err := two.TryLock(e.ctx, key, locker.OncePer(time.Hour))
		if err == nil {
			e.unlock(g)
		}
		return err == nil
	})
}

func oncePeriod(e *env) {
	const instances, periods = 5, 3
	period := 2 * e.short
	// marks end by the second, as leases do, and a busy store is seconds late.
	if slowLeases(e.caps) {
		period = 4 * e.short
	}
	every := period * 3 / 4
	// A store whose clients' clocks are apart has leases and marks last for longer.
	a, brief := e.open(), e.brief(e.key("brief"))
	e.acquire(a, brief)
	most := period + max(0, e.refused(a, e.claim(brief.Key)).RetryAfter-brief.TTL)
	type call struct{ called, began time.Time } // began is zero if it did not run
	var mu sync.Mutex
	var calls []call
	key := e.key("job")
	clients := make([]*locker.Client[struct{}], instances)
	for i := range clients {
		clients[i] = e.locker(e.open(), locker.Config{})
	}
	start := time.Now()
	parallel(instances, func(i int) {
		late := time.Duration(i) * period / 2 / (instances - 1) // is its clock
		for n := range periods {
			e.pause(time.Until(start.Add(late + time.Duration(n)*period)))
			c := call{called: time.Now()}
			_, err := locker.Once(e.ctx, clients[i], key, every,
				func(context.Context, struct{}) error {
					c.began = time.Now()
					return nil
				})
			if err != nil {
				e.Errorf("Once = %v", err)
			}
			mu.Lock()
			calls = append(calls, c)
			mu.Unlock()
		}
	})
	// The machine may stand still at any moment, so what counts is when a call was made and when
	// its function began, which is at the earliest when the mark before it has ended.
	runs := slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return c.began.IsZero() })
	slices.SortFunc(runs, func(a, b call) int { return a.began.Compare(b.began) })
	if len(runs) < 2 {
		e.Fatalf("it ran %d times in %d calls over %d periods", len(runs), len(calls), periods)
	}
	for i, c := range runs[1:] {
		// A store may count milliseconds.
		if d := c.began.Sub(runs[i].called); d < every-2*time.Millisecond {
			e.Errorf("it ran again %v after a call that ran it, want %v at least", d, every)
		}
	}
	for _, c := range calls {
		if c.began.IsZero() && !slices.ContainsFunc(runs, func(r call) bool {
			return c.called.Before(r.began.Add(most))
		}) {
			e.Errorf("it did not run %v after the beginning, and had not run for %v",
				c.called.Sub(start), most)
		}
	}
}
