// Package scheduler has what gocron asks before it runs a job in one of several instances.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// A Locker is for gocron.WithDistributedLocker, or WithDistributedJobLocker if jobs have different
// periods. A job runs in one instance at a time, and not again before Every is over since its last
// run began: a lock alone is free again when the next instance's clock, which is a little late,
// comes to the same minute. Give three quarters of the period.
type Locker struct {
	Client *locker.Client[struct{}]
	Every  time.Duration
}

// Lock takes the lock of a job, which gocron names by gocron.WithName. An error has this instance
// leave the run out: locker.ErrEarly if the job ran in this period, backend.ErrHeld if another
// instance runs it, any other if the store did not answer.
func (l Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	g, err := l.Client.TryLock(ctx, key, locker.OncePer(l.Every))
	if err != nil {
		return nil, err // and not a nil guard in an interface
	}
	return lock{g}, nil
}

type lock struct{ *locker.Guard[struct{}] }

// Unlock leaves the mark that keeps others from the job for the rest of the period. It needs no
// ctx: gocron's may be over by now.
func (l lock) Unlock(context.Context) error { return l.Guard.Unlock() }

// An Elector is for gocron.WithDistributedElector: of all instances one runs the jobs, until it
// resigns or is gone. It has the lock for as long as it leads, and campaigns when gocron asks it.
type Elector struct {
	Client *locker.Client[struct{}]
	Key    string

	mu    sync.Mutex
	guard *locker.Guard[struct{}]
}

// IsLeader returns nil to the leader. It asks the store only while this instance does not lead.
func (e *Elector) IsLeader(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.guard != nil {
		_, err := e.guard.Value()
		if err == nil {
			return nil
		}
		_ = e.guard.Unlock() // the lock is lost; campaign again
		e.guard = nil
	}
	g, err := e.Client.TryLock(ctx, e.Key) // the hold goes on when ctx, the job's, is over
	if errors.Is(err, backend.ErrHeld) {
		return fmt.Errorf("another instance leads: %w", err)
	}
	if err == nil {
		e.guard = g
	}
	return err
}

// Resign lets another lead at once, as a shutdown should after the scheduler's.
func (e *Elector) Resign() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.guard == nil {
		return nil
	}
	g := e.guard
	e.guard = nil
	return g.Unlock()
}
