package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing/contention"
)

// closeGrace is how long a process's locks may take to be given back when it is over.
const closeGrace = 3 * time.Second

// A crew is the buyers of one process.
type crew struct {
	Spec
	store *Store // where the lock is kept; nil without one
	stock *ledger
	lock  locker.Locker[*shelf] // nil without a lock
	turns atomic.Int64          // how often a buyer had the shelf
}

// work lets the buyers of one process buy, on st, which is nil without a lock, until all is sold,
// ctx ends, or the store fails, whose error it returns.
func (s Spec) work(ctx context.Context, st *Store, stock *ledger) (err error) {
	c := &crew{Spec: s, store: st, stock: stock}
	if st != nil {
		cfg, tracker := st.Config, contention.New(contention.Config{})
		cfg.Observer = locker.Observers(tracker, cfg.Observer)
		lock, err := locker.New(st, stock.bind, cfg)
		if err != nil {
			return err
		}
		c.lock = lock
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
			defer cancel()
			_ = lock.Shutdown(ctx) // what a silent store keeps runs out by itself
			if slow := s.slowest(tracker.Snapshot()); slow != nil {
				_ = stock.post(entry{Kind: kindSlow, Slow: slow})
			}
		}()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	var once sync.Once
	for worker := 1; worker <= s.Workers; worker++ {
		working.Go(func() {
			if failed := c.buyer(ctx, worker); failed != nil {
				once.Do(func() { err = failed })
				cancel(failed)
			}
		})
	}
	working.Wait()
	return err
}

// buyer buys one item after the other.
func (c *crew) buyer(ctx context.Context, worker int) error {
	for ctx.Err() == nil {
		turn := entry{Kind: kindTurn}
		err := c.buy(ctx, worker, &turn)
		if turn.Lost = errors.Is(err, locker.ErrLost); turn.Lost || turn.Token != 0 {
			err = errors.Join(err, c.stock.post(turn))
		}
		switch {
		case errors.Is(err, errSoldOut), ctx.Err() != nil:
			return nil
		case turn.Lost, errors.Is(err, errStale): // bad luck, and no harm: try again
		case err != nil:
			return err
		case c.Rest > 0:
			_ = pause(ctx, rand.N(2*c.Rest))
		}
	}
	return nil
}

// traceparent has a buyer's number for its trace, so that [contention.Tracker] tells who it is.
// Nothing of that trace is recorded.
func traceparent(buyer int) string { return fmt.Sprintf("00-%032x-%016x-00", buyer, buyer) }

// buy buys one item, under the lock if there is one.
func (c *crew) buy(ctx context.Context, worker int, turn *entry) error {
	if c.lock == nil {
		return c.trade(ctx, &shelf{ledger: c.stock})
	}
	ctx, end := c.store.span(locker.WithTraceparent(ctx, traceparent(worker)), "buy")
	defer end()
	asked := time.Now()
	return locker.Do(ctx, c.lock, c.Key, func(ctx context.Context, s *shelf) error {
		turn.Token, turn.Wait = s.token, time.Since(asked)
		return c.trade(ctx, s)
	})
}

// trade is the critical section: read, think, write.
func (c *crew) trade(ctx context.Context, s *shelf) error {
	left, err := s.look()
	if err != nil {
		return err
	}
	if left == 0 {
		return errSoldOut
	}
	turn := c.turns.Add(1)
	if turn == int64(c.FreezeAt) {
		e := entry{Kind: kindFrozen, Token: s.token, PID: os.Getpid()}
		if err := c.stock.post(e); err != nil {
			return err
		}
		<-ctx.Done() // or until somebody kills us
	}
	think := c.Think
	if turn == int64(c.SlowAt) && c.Process == c.Processes {
		think *= 10
	}
	if err := c.pay(ctx, think); err != nil {
		return err
	}
	return s.sell(left - 1)
}

// pay takes a while. In a trace, it is what a holder was busy with.
func (c *crew) pay(ctx context.Context, think time.Duration) error {
	_, end := c.store.span(ctx, "pay")
	defer end()
	return pause(ctx, think)
}

// pause takes d, as a payment would. The error is why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
