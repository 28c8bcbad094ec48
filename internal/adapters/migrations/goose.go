package migrations

import (
	"context"
	"database/sql"
	"time"

	"github.com/pressly/goose/v3/lock"

	"github.com/holdfast-go/holdfast/locker"
)

// A Goose is for goose.WithLocker, with any database. goose runs all its migrations between Lock
// and Unlock, each in a transaction, and asks nothing in between: a lock that is lost, Unlock
// tells. Have a Provider for each instance.
type Goose struct {
	Client *locker.Client[struct{}]
	Key    string
	// for how long an instance waits for another's migrations; 0 until ctx is done
	Wait time.Duration

	guard *locker.Guard[struct{}]
}

var _ lock.Locker = (*Goose)(nil)

// Lock waits for the lock.
func (l *Goose) Lock(ctx context.Context, _ *sql.DB) (err error) {
	l.guard, err = l.Client.Lock(ctx, l.Key, locker.WaitLimit(l.Wait))
	return err
}

// Unlock releases it, whatever became of goose's ctx. An error says that it was lost before, and
// another may have migrated meanwhile.
func (l *Goose) Unlock(context.Context, *sql.DB) error { return l.guard.Unlock() }
