package demo

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/locker"
)

// A crew is the buyers of one process.
type crew struct {
	spec  spec
	store *store // where the lock is kept; nil without one
	stock *ledger
	lock  locker.Locker[*shelf] // nil without a lock
	emit  func(event)           // called by all buyers at once
	turns atomic.Int64          // how often a buyer had the shelf
}

// An event is what a crew tells of its buyers. In several processes it is a line of JSON.
type event struct {
	Kind   string        `json:"kind"`
	Worker int           `json:"worker,omitzero"`
	Token  uint64        `json:"token,omitzero"`
	Wait   time.Duration `json:"wait,omitzero"` // from asking for the lock to having it
	Held   time.Duration `json:"held,omitzero"` // from having it to this event
	Sold   bool          `json:"sold,omitzero"`
	Lost   bool          `json:"lost,omitzero"` // the lock, before it was unlocked
	Error  string        `json:"error,omitzero"`
}

// The kinds of events.
const (
	evReady  = "ready"  // the backend is open
	evTurn   = "turn"   // a buyer had its turn
	evFrozen = "frozen" // a buyer has stopped in mid-hold, as it was told to
	evFailed = "failed" // the process gives up
	evUnsent = "unsent" // it was traced, and not all traces got through
)

// run lets the buyers buy until all is sold, ctx ends, or the store fails, whose error it returns.
func (c *crew) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var once sync.Once
	var failed error
	for worker := 1; worker <= c.spec.Workers; worker++ {
		wg.Go(func() {
			if err := c.buyer(ctx, worker); err != nil {
				once.Do(func() { failed = err })
				cancel(err)
			}
		})
	}
	wg.Wait()
	return failed
}

// buyer buys one item after the other.
func (c *crew) buyer(ctx context.Context, worker int) error {
	for ctx.Err() == nil {
		e := event{Kind: evTurn, Worker: worker}
		err := c.buy(ctx, &e)
		if e.Lost = errors.Is(err, locker.ErrLost); e.Lost || e.Token != 0 || e.Sold {
			c.emit(e)
		}
		switch {
		case errors.Is(err, errSoldOut), ctx.Err() != nil:
			return nil
		case e.Lost, errors.Is(err, errStale): // bad luck, and no harm: try again
		case err != nil:
			return err
		}
		if e.Sold && c.spec.Rest > 0 {
			_ = pause(ctx, rand.N(2*c.spec.Rest))
		}
	}
	return nil
}

// buy buys one item, under the lock if there is one.
func (c *crew) buy(ctx context.Context, e *event) error {
	if c.lock == nil {
		return c.trade(ctx, c.stock.unguarded(), e)
	}
	ctx, span := c.store.start(ctx, "buy")
	defer span.End()
	asked := time.Now()
	return locker.Do(ctx, c.lock, c.spec.Key, func(ctx context.Context, s *shelf) error {
		e.Token, e.Wait = s.token, time.Since(asked)
		got := time.Now()
		defer func() { e.Held = time.Since(got) }()
		return c.trade(ctx, s, e)
	})
}

// trade is the critical section: read, think, write.
func (c *crew) trade(ctx context.Context, s *shelf, e *event) error {
	left, err := s.look()
	if err != nil {
		return err
	}
	if left == 0 {
		return errSoldOut
	}
	if turn := c.turns.Add(1); turn == int64(c.spec.FreezeAt) {
		c.emit(event{Kind: evFrozen, Worker: e.Worker, Token: s.token})
		<-ctx.Done() // or until somebody kills us
	}
	if err := c.pay(ctx); err != nil {
		return err
	}
	if err := s.sell(e.Worker, left-1); err != nil {
		return err
	}
	e.Sold = true
	return nil
}

// pay takes the time to think. In a trace, it is what a holder was busy with.
func (c *crew) pay(ctx context.Context) error {
	_, span := c.store.start(ctx, "pay")
	defer span.End()
	return pause(ctx, c.spec.Think)
}

// pause takes d, as a payment would. The error is why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
