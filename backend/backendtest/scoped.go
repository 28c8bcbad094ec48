package backendtest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

var scopedRules = []rule{
	{
		name: "scoped/closed-before-next", run: closedBeforeNext,
		why: "What a guard protects is closed before the lock is released: who has the key next, " +
			"in whichever process, finds" +
			" it closed.",
	},
	{
		name: "scoped/one-open", run: oneOpen, slow: true,
		why: "After a loss the store may grant the key at once. In the process that lost it " +
			"nothing is opened for the next" +
			" holder while the last one's is open, whatever ended the hold.",
	},
}

// counted counts what is open and how many were at most.
type counted struct {
	open, most, opened atomic.Int64
}

func (c *counted) add(n int64) {
	open := c.open.Add(n)
	for most := c.most.Load(); open > most &&
		!c.most.CompareAndSwap(most, open); most = c.most.Load() {
	}
	if n > 0 {
		c.opened.Add(1)
	}
}

// scoped returns a client on b whose guards protect what all of counts count, and which takes
// closing to close.
func (e *env) scoped(b backend.Backend, cfg locker.Config, closing time.Duration,
	counts ...*counted,
) *locker.Client[struct{}] {
	e.Helper()
	if cfg.TTL == 0 {
		cfg.TTL = e.long
	}
	cfg.Logger, cfg.StoreTimeout = discard, patience
	l, err := locker.New(b, locker.Scoped(
		func(context.Context, locker.Hold) (struct{}, error) {
			for _, c := range counts {
				c.add(1)
			}
			return struct{}{}, nil
		},
		func(struct{}) error {
			e.pause(closing)
			for _, c := range counts {
				c.add(-1)
			}
			return nil
		}), cfg)
	if err != nil {
		e.Fatalf("locker.New = %v", err)
	}
	e.later(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), 2*cfg.TTL+patience)
		defer cancel()
		if err := l.Shutdown(ctx); err != nil {
			e.Errorf("locker: Close = %v", err)
		}
	})
	return l
}

func closedBeforeNext(e *env) {
	var all counted
	key := e.key("k")
	clients := []*locker.Client[struct{}]{
		e.scoped(e.open(), locker.Config{}, time.Millisecond, &all), e.scoped(e.open(),
			locker.Config{}, time.Millisecond, &all),
	}
	const workers, rounds = 4, 5
	parallel(workers, func(i int) {
		for range rounds {
			err := locker.Do(e.ctx, clients[i%2], key, func(context.Context, struct{}) error {
				e.pause(time.Millisecond)
				return nil
			})
			if err != nil {
				e.Errorf("Do = %v", err)
				return
			}
		}
	})
	if all.most.Load() != 1 || all.opened.Load() != workers*rounds || all.open.Load() != 0 {
		e.Errorf("%d were opened, %d of them at once, and %d are open; want %d, 1 and 0",
			all.opened.Load(), all.most.Load(), all.open.Load(), workers*rounds)
	}
}

func oneOpen(e *env) {
	counts := []*counted{{}, {}}
	key := e.key("k")
	cfg := locker.Config{TTL: e.short}
	clients := []*locker.Client[struct{}]{
		e.scoped(e.open(), cfg, e.short/8, counts[0]), e.scoped(e.open(), cfg, e.short/8,
			counts[1]),
	}
	const workers, rounds = 4, 6
	var wg sync.WaitGroup
	done := make(chan struct{})
	if e.h.Drop != nil {
		wg.Go(func() { // takes the lock from whoever has it
			for {
				e.pause(e.short / 3)
				select {
				case <-done:
					return
				default:
					e.h.Drop(e, key)
				}
			}
		})
	}
	panicked := errors.New("panicked")
	parallel(workers, func(i int) {
		for n := range rounds {
			var opts []locker.Option
			if n%3 == 1 {
				opts = append(opts, locker.MaxHold(e.short/16))
			}
			work := func() (err error) {
				defer func() {
					if recover() != nil {
						err = panicked
					}
				}()
				return locker.Do(e.ctx, clients[i%2], key, func(context.Context, struct{}) error {
					e.pause(e.short / 8) // whatever becomes of the hold: this one does not look
					if n%3 == 2 {
						panic("at work")
					}
					return nil
				}, opts...)
			}
			err := work()
			if err != nil && !errors.Is(err, panicked) && !errors.Is(err, locker.ErrLost) &&
				!errors.Is(err, locker.ErrMaxHold) {
				e.Errorf("Do = %v", err)
				return
			}
		}
	})
	close(done)
	wg.Wait()
	for i, c := range counts {
		if c.most.Load() != 1 || c.open.Load() != 0 {
			e.Errorf("client %d: %d were open at once, and %d are open; want 1 and 0", i,
				c.most.Load(), c.open.Load())
		}
	}
}
