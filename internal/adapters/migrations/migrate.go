// Package migrations has the locks that golang-migrate and goose take around the migration of a
// schema: for databases whose driver has none of its own (SQLite, ClickHouse, Cassandra, Spanner),
// and behind a pooler such as PgBouncer, where a session lock of PostgreSQL stays with a connection
// that somebody else gets.
package migrations

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/holdfast-go/holdfast/locker"
)

// A Driver is a database of golang-migrate for migrate.NewWithInstance, with this lock instead of
// its own. Before each migration it asks whether the lock is still held; Run is not cut off in the
// middle, so let a migration be a transaction.
type Driver struct {
	database.Driver
	Client *locker.Client[struct{}]
	Key    string

	// Wait is for how long an instance waits for another's migrations. It has to be shorter than
	// migrate.Migrate.LockTimeout, 15 seconds unless you set it: that one does not end the wait,
	// but leaves it behind.
	Wait time.Duration

	guard *locker.Guard[struct{}]
}

// Lock waits for the lock. The error is database.ErrLocked, and why.
func (d *Driver) Lock() error {
	g, err := d.Client.Lock(context.Background(), d.Key, locker.WaitLimit(d.Wait))
	if err != nil {
		return fmt.Errorf("%w: %w", database.ErrLocked, err)
	}
	d.guard = g
	return nil
}

// Unlock releases it. An error says that it was lost before, and another may have migrated
// meanwhile.
func (d *Driver) Unlock() error { return d.guard.Unlock() }

// Run runs a migration if the lock is held.
func (d *Driver) Run(migration io.Reader) error {
	if _, err := d.guard.Value(); err != nil {
		return fmt.Errorf("not migrated: %w", err)
	}
	return d.Driver.Run(migration)
}

// SetVersion notes a migration if the lock is held: what another instance has noted since is not
// overwritten.
func (d *Driver) SetVersion(version int, dirty bool) error {
	if _, err := d.guard.Value(); err != nil {
		return errors.Join(fmt.Errorf("version %d is not noted", version), err)
	}
	return d.Driver.SetVersion(version, dirty)
}
