package pgbackend

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
)

// keptFor is how much longer a hold lasts for whoever finds that a transaction keeps it.
const keptFor = time.Second

// InTx proves in tx, a transaction of the database that has the locks, that the hold with this key
// ([locker.Hold].StoreKey) and token is the key's, and keeps it so until tx ends, or a savepoint
// that was set before is rolled back to: what tx writes is committed by the holder, or not at all.
// It needs no clock, and no fencing token. A hold that has ended is [backend.ErrLost]. After any
// error tx must be rolled back. table is Config.Table if that was set.
//
// The hold can be renewed meanwhile, and others can queue; whoever would be granted the key finds
// it held, until a second after tx has ended at most if its lease is over by then. So a transaction
// that never ends keeps the key: idle_in_transaction_session_timeout bounds that. To release the
// hold while tx is in flight is [backend.ErrUnavailable]: commit first.
//
// tx has to be READ COMMITTED, as in the others a statement does not see what the key has become
// since tx began. InTx takes two round trips, and waits for a statement that is ending the hold.
//
// Safety: each hold has an advisory lock of PostgreSQL. InTx takes it as one of many, and after
// that reads the row, with a snapshot of its own. A statement that takes a hold out of the row
// takes the lock alone, or writes nothing; both last until the transaction's end. If such a
// statement came first, its commit was there before the lock was free, so InTx reads that the hold
// is over. If InTx came first, there is no such statement until tx has ended, and while the hold is
// in the row, the rules let nobody in beside it. So whatever tx commits comes before the next
// grant. TestPausedHolder and TestCommitInFlight try it.
func InTx(ctx context.Context, tx pgx.Tx, key string, token uint64, table ...string) error {
	cfg := Config{Table: cmp.Or(slices.Concat(table, []string{DefaultTable})...)}
	if err := cfg.validate(); err != nil {
		return err
	}
	query := `SELECT (SELECT value FROM ` + cfg.quoted() +
		` WHERE key = $1::bytea), current_setting('transaction_isolation')`
	var value []byte
	var isolation string
	if err := tx.QueryRow(ctx, query, []byte(key)).Scan(&value, &isolation); err != nil {
		return explain(err)
	}
	if isolation != "read committed" {
		return &backend.InvalidError{Field: "tx", Value: isolation, Reason: "is not read committed"}
	}
	lease, err := leaseOf(key, value, token)
	if err != nil {
		return err
	}
	var both pgx.Batch
	// safeguard: pg-intx
	both.Queue(`SELECT pg_advisory_xact_lock_shared($1)`, locksOf(key, []uint64{lease})[0])
	scan := func(row pgx.Row) error { return row.Scan(&value, &isolation) }
	both.Queue(query, []byte(key)).QueryRow(scan) // safeguard: pg-intx-again
	if err := tx.SendBatch(ctx, &both).Close(); err != nil {
		return explain(err)
	}
	again, err := leaseOf(key, value, token)
	if err == nil && again != lease {
		err = fmt.Errorf("%w: its token was raised meanwhile", backend.ErrUnavailable)
	}
	return err
}

// leaseOf returns the first token of the lease that has token.
func leaseOf(key string, value []byte, token uint64) (uint64, error) {
	r, err := record.Decode(key, value)
	if err != nil {
		return 0, err
	}
	for _, h := range r.Holds {
		//nolint:gosec // not negative
		if h.Token <= token && token-h.Token < uint64(max(h.Reserved, 1)) {
			return h.Token, nil
		}
	}
	return 0, fmt.Errorf("%w: %q is not held with token %d", backend.ErrLost, key, token)
}
