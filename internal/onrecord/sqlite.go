// Package onrecord is the backend that docs/writing-a-backend.md shows: locks in a table of SQLite,
// for the processes of one machine.
package onrecord

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"time"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
)

func init() { backend.Register("sqlite", open) }

// open serves sqlite:///FILE.
func open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	if u.User != nil || u.Host != "" || u.RawQuery != "" || u.Fragment != "" || u.Path == "" {
		return nil, &backend.InvalidError{
			Field:  "url",
			Reason: "sqlite:// takes the path of a file and nothing else",
		}
	}
	// immediate: a transaction has the right to write from its begin on, and waits for it. normal:
	// a power failure may take the last commits, and ends the processes that held by them.
	const options = "?_txlock=immediate&_pragma=busy_timeout(4000)" +
		"&_pragma=journal_mode(wal)&_pragma=synchronous(normal)"
	db, err := sql.Open("sqlite", "file:"+u.EscapedPath()+options)
	if err != nil {
		return nil, err
	}
	// Goroutines queue here: in SQLite those who wait ask again and again, and may starve.
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(ctx,
		`CREATE TABLE IF NOT EXISTS locks
			(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID`)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", backend.ErrUnavailable, err), db.Close())
	}
	s := store{db}
	return record.New(s, record.Config{
		Name: "sqlite",
		// SQLite has no clock of its own, and the machine's may be set
		Skew:  time.Second,
		Poll:  20 * time.Millisecond, // it tells nobody of changes
		Keys:  s.keys,
		Close: db.Close,
	}), nil
}

// A store is a table with a row for each key.
type store struct{ db *sql.DB }

// Change implements record.Store: f and the write are one transaction. What fails before its commit
// is certainly not done; a commit without an answer is unknown.
func (s store) Change(ctx context.Context, key string,
	f func([]byte, time.Time) ([]byte, error),
) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return notDone(err)
	}
	defer tx.Rollback() // of what was not committed
	value, err := read(ctx, tx, key)
	if err != nil {
		return notDone(err)
	}
	next, err := f(value, time.Now())
	if err != nil {
		return err
	}
	if next == nil {
		_, err = tx.ExecContext(ctx, `DELETE FROM locks WHERE key = ?`, key)
	} else {
		_, err = tx.ExecContext(ctx, `INSERT INTO locks VALUES (?, ?)
			ON CONFLICT (key) DO UPDATE SET value = excluded.value`, key, next)
	}
	if err != nil {
		return notDone(err)
	}
	return tx.Commit()
}

// Read implements record.Store.
func (s store) Read(ctx context.Context, key string) ([]byte, time.Time, error) {
	value, err := read(ctx, s.db, key)
	return value, time.Now(), err
}

// read returns nil if there is no row.
func read(ctx context.Context, in interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, key string,
) (value []byte, err error) {
	err = in.QueryRowContext(ctx, `SELECT value FROM locks WHERE key = ?`, key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return value, err
}

func notDone(err error) error { return fmt.Errorf("%w: %w", backend.ErrUnavailable, err) }

// keys is for List: 100 at a time, so that no read keeps a writer waiting.
func (s store) keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for last, some := prefix, []string{""}; len(some) > 0; {
			const query = `SELECT key FROM locks
				WHERE key >= ? AND substr(key, 1, length(?)) = ? ORDER BY key LIMIT 100`
			rows, err := s.db.QueryContext(ctx, query, last, prefix, prefix)
			if err != nil {
				yield("", err)
				return
			}
			some = nil
			for rows.Next() {
				var key string
				if err = rows.Scan(&key); err == nil {
					some = append(some, key)
				}
			}
			if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
				yield("", err)
				return
			}
			for _, key := range some {
				if !yield(key, nil) {
					return
				}
				last = key + "\x00" // the next one at least
			}
		}
	}
}
