package locker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// A scheduler that runs in many instances asks a locker of its own before each run, by an interface
// like these two (they are gocron's). A lock alone is not enough there: a job that is short is
// over, and its lock free, when the next instance's clock comes to the same minute.
type (
	schedulerLocker interface {
		Lock(ctx context.Context, key string) (schedulerLock, error) // an error: the job is not run
	}
	schedulerLock interface {
		Unlock(ctx context.Context) error
	}
)

// perPeriod lets each job run once in a period.
type perPeriod struct {
	*locker.Client[struct{}]
	every time.Duration
}

func (p perPeriod) Lock(ctx context.Context, key string) (schedulerLock, error) {
	g, err := p.TryLock(ctx, key, locker.OncePer(p.every))
	if err != nil {
		// ErrEarly if it ran in this period, backend.ErrHeld if another is running it.
		return nil, err
	}
	return guardLock{g}, nil
}

type guardLock struct{ *locker.Guard[struct{}] }

func (g guardLock) Unlock(context.Context) error { return g.Guard.Unlock() }

// An adapter for a job scheduler: of several instances one runs the job in each period. OncePer
// gets three quarters of it, so that instances whose clocks differ by up to half a period agree.
func Example_scheduler() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	for range 3 { // instances, one after the other in the same period
		l, err := locker.New(b, locker.Bare, locker.Config{})
		if err != nil {
			panic(err)
		}
		//nolint:gocritic // each instance lives until the end
		defer l.Close()
		var s schedulerLocker = perPeriod{l, 45 * time.Minute} // of an hourly job

		lock, err := s.Lock(ctx, "invoices")
		var early *locker.EarlyError
		switch {
		case errors.As(err, &early):
			fmt.Println("ran in this hour; the next may run in",
				early.RetryAfter.Round(time.Minute))
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println("runs, and unlocks:", lock.Unlock(ctx))
		}
	}
	// Output:
	// runs, and unlocks: <nil>
	// ran in this hour; the next may run in 45m0s
	// ran in this hour; the next may run in 45m0s
}
