package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

var storeRules = []rule{
	{
		name: "store/update", run: storeUpdate, needs: backend.Capabilities{State: true, Fencing: true},
		why: "Load, change and save is one step for everybody else: no update is lost, whoever comes between.",
	},
	{
		name: "store/lost", run: storeLost, needs: backend.Capabilities{State: true, Fencing: true},
		why: "Who lost the lock saves nothing, whether he knows or not: so a paused holder does no harm, and no token is to be checked.",
	},
	{
		name: "store/refused", run: storeRefused, once: true,
		why: "A program learns when it starts that its backend keeps no values or marks, and not by losing one.",
	},
	{
		name: "once/period", run: oncePeriod, needs: backend.Capabilities{NotBefore: true}, slow: true,
		why: "A job that many instances try runs once in each period, however short it is and whatever their clocks say" +
			" (ShedLock's lockAtLeastFor, gocron#841).",
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
	got, token, err := s.Get(e.ctx, key)
	if err != nil || got != want {
		e.Errorf("Get = %d, %v, want %d", got, err, want)
	}
	return token
}

func increment(v int) (int, error) { return v + 1, nil }

func storeUpdate(e *env) {
	stores := []*locker.Store[int]{e.store(e.open()), e.store(e.open())}
	key := e.key("k")
	if token := e.holds(stores[0], key, 0); token != 0 {
		e.Errorf("token %d of a value that was never saved", token)
	}
	const workers, rounds = 6, 4
	parallel(workers, func(i int) {
		s, last := stores[i%2], uint64(0)
		for range rounds {
			if err := s.Update(e.ctx, key, increment); err != nil {
				e.Errorf("Update = %v", err)
				return
			}
			_, token, err := s.Get(e.ctx, key)
			if err != nil || token <= last {
				e.Errorf("Get after an Update: token %d after %d, %v", token, last, err)
			}
			last = token
		}
	})
	e.holds(stores[1], key, workers*rounds)
	e.is("Update whose function fails", stores[0].Update(e.ctx, key, func(int) (int, error) { return 0, context.Canceled }), context.Canceled)
	e.holds(stores[1], key, workers*rounds)
	g := e.lock(e.locker(e.open(), locker.Config{}), key) // a plain lock of the same key leaves the value
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
		err = a.Update(e.ctx, key, func(v int) (int, error) {
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
		_, err := locker.Once(e.ctx, l, e.key("k"), time.Hour, func(context.Context, struct{}) error { return nil })
		e.is("Once on a backend that keeps no marks", err, errors.ErrUnsupported)
	}
}

func oncePeriod(e *env) {
	const instances, periods = 5, 3
	period := 2 * e.short
	if slowLeases(e.caps) { // marks end by the second, as leases do, and a busy store is seconds late
		period = 8 * e.short
	}
	key := e.key("job")
	var mu sync.Mutex
	runs := map[int]int{}
	clients := make([]*locker.Client[struct{}], instances)
	for i := range clients {
		clients[i] = e.locker(e.open(), locker.Config{})
	}
	start := time.Now()
	parallel(instances, func(i int) {
		late := time.Duration(i) * period / 2 / (instances - 1) // is its clock
		for n := range periods {
			e.pause(time.Until(start.Add(late + time.Duration(n)*period)))
			_, err := locker.Once(e.ctx, clients[i], key, period*3/4, func(context.Context, struct{}) error {
				mu.Lock()
				defer mu.Unlock()
				runs[n]++
				return nil
			})
			if err != nil {
				e.Errorf("Once = %v", err)
			}
		}
	})
	if got := fmt.Sprint(runs); got != "map[0:1 1:1 2:1]" {
		e.Errorf("runs by period: %s, want one in each", got)
	}
}
