package fence

import (
	"context"
	"database/sql"
)

// Table makes the table that [Admit] keeps the newest token of each key in, in PostgreSQL and in
// SQLite. Run it with the rest of the schema, once: where several do at a time, PostgreSQL lets one
// of them fail.
const Table = `CREATE TABLE IF NOT EXISTS holdfast_fence ` +
	`(key TEXT PRIMARY KEY, token BIGINT NOT NULL)`

// admit takes the row of the key, and with it whoever comes later until the transaction ends, and
// changes it unless it has a newer token. One row is changed, or none.
const admit = `INSERT INTO holdfast_fence (key, token) VALUES ($1, $2)
ON CONFLICT (key) DO UPDATE SET token = excluded.token WHERE holdfast_fence.token <= excluded.token`

// Admit lets a transaction go on if token is not older than any that was admitted for key, and
// returns an [ErrStale] otherwise: then roll it back. Call it first, before anything is read. It
// works with PostgreSQL and SQLite, in a database that has [Table].
//
// Until the transaction ends, others of the same key wait in Admit, so an older holder's writes are
// all before those of a newer one, or refused. A holder that is stopped in the middle of a
// transaction keeps others out as long as the database keeps its transaction: set
// idle_in_transaction_session_timeout, or use [Exec], which is one statement. Where the isolation
// level is repeatable read or higher, PostgreSQL ends one of two that meet here with a
// serialization failure, which is no ErrStale: try again.
//
// Tokens are uint64, as they are counts, and BIGINT goes to 2^63 - 1. No token is as large: those
// of Redis, of a quorum and of mem:// are microseconds since 1970, below 2^53, and those of etcd
// are 1024 times its revision, which reaches 2^53 after nine thousand years of 30,000 writes a
// second. Package database/sql refuses to send a larger one, and so does Admit; none wraps around.
func Admit(ctx context.Context, tx *sql.Tx, key string, token uint64) error {
	_, err := Exec(ctx, tx, key, token, admit, key, token)
	return err
}

// Exec runs a statement that changes a row on the condition that its token is not newer, and
// returns an [ErrStale] if it changed none. Data that have a column for the token need nothing
// else:
//
//	UPDATE stock SET left_over = $1, token = $2 WHERE sku = $3 AND token <= $2
//
// The column is BIGINT NOT NULL DEFAULT 0. A row that is not there cannot be told from one that is
// newer. args must have the token where the statement needs it; key and token are for the error. db
// is a *sql.DB, a *sql.Conn or a *sql.Tx. Without an answer the statement may have been executed;
// to run it again with the same token is harmless if the statement itself is so. A statement that
// changes several rows changes those whose tokens allow it, and is refused only if there is none:
// use Admit for more than one row.
func Exec(ctx context.Context, db Execer, key string, token uint64, query string,
	args ...any,
) (sql.Result, error) {
	if err := check(key, token); err != nil {
		return nil, err
	}
	done, err := db.ExecContext(ctx, query, args...)
	if err != nil {
		return nil, failed(key, err)
	}
	changed, err := done.RowsAffected()
	if err != nil {
		return nil, failed(key, err)
	}
	if changed == 0 {
		return nil, &StaleError{Key: key, Token: token}
	}
	return done, nil
}

// An Execer runs a statement; *sql.DB, *sql.Conn and *sql.Tx do.
type Execer interface {
	// ExecContext is that of [sql.DB].
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}
