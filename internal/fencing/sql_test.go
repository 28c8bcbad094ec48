package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker/fence"
)

// databases runs a test on each.
func databases(t *testing.T, test func(t *testing.T, db *sql.DB)) {
	t.Run("sqlite", func(t *testing.T) { test(t, prepared(t, "sqlite", sqliteFile(t), "sku")) })
	t.Run("postgres", func(t *testing.T) {
		test(t, prepared(t, "pgx", testserver.Postgres(t).URL(), "sku"))
	})
}

func admit(ctx context.Context, db *sql.DB, key string, token uint64,
	do func(*sql.Tx) error,
) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fence.Admit(ctx, tx, key, token); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func nothing(*sql.Tx) error { return nil }

// covers: K4
func TestAdmit(t *testing.T) {
	databases(t, func(t *testing.T, db *sql.DB) {
		var newest uint64 = math.MaxInt64
		for _, step := range []struct {
			key   string
			token uint64
			want  error
		}{
			{"a", 5, nil},
			{"a", 5, nil},
			{"a", 4, fence.ErrStale},
			{"b", 4, nil},
			{"a", 1 << 53, nil},
			{"a", 5, fence.ErrStale},
			{"a", newest, nil},
			{"a", newest - 1, fence.ErrStale},
			{"a", newest + 1, backend.ErrInvalid},
			{"a", 0, backend.ErrInvalid},
		} {
			if err := admit(t.Context(), db, step.key, step.token, nothing); !errors.Is(err,
				step.want) {
				t.Errorf("%+v: %v", step, err)
			}
		}
		// The driver would not have sent one that does not fit.
		if _, err := db.ExecContext(t.Context(), `UPDATE stock SET token = $1`,
			newest+1); err == nil {
			t.Error("a token of 2^63 was stored")
		}
		own := errors.New("own")
		if err := admit(t.Context(), db, "c", 9, func(*sql.Tx) error {
			return own
		}); !errors.Is(err, own) {
			t.Error(err)
		}
		if err := admit(t.Context(), db, "c", 8, nothing); err != nil {
			t.Errorf("after a rollback of token 9: %v", err)
		}
	})
}

// Many holders at once, each of which reads and writes: no write of an older one comes between
// those of a newer one, and none is lost.
func TestAdmitUnderLoad(t *testing.T) {
	databases(t, func(t *testing.T, db *sql.DB) {
		var tasks sync.WaitGroup
		for worker := range 4 {
			tasks.Go(func() {
				for i := range 25 {
					token := uint64(i*4 + worker + 1)
					err := admit(t.Context(), db, "sku", token, func(tx *sql.Tx) error {
						var units int
						var last uint64
						if err := tx.QueryRowContext(t.Context(),
							`SELECT units, token FROM stock`).Scan(&units, &last); err != nil {
							return err
						}
						if last > token {
							t.Errorf("%d was let in after %d", token, last)
						}
						_, err := tx.ExecContext(t.Context(),
							`UPDATE stock SET units = $1, token = $2`, units+1, token)
						return err
					})
					switch {
					case err == nil:
					case !errors.Is(err, fence.ErrStale):
						t.Error(err)
					}
				}
			})
		}
		tasks.Wait()
		var units, last int
		if err := db.QueryRowContext(t.Context(), `SELECT units, token FROM stock`).Scan(&units,
			&last); err != nil {
			t.Fatal(err)
		}
		if last != 100 || units == 0 {
			t.Errorf("the last token is %d, after %d writes", last, units)
		}
	})
}

// A holder that stops in the middle of its transaction keeps the next one waiting for as long as
// the database lets it, and then its transaction is gone.
func TestStoppedInTransaction(t *testing.T) {
	db := prepared(t, "pgx",
		testserver.Postgres(t).URL()+"&idle_in_transaction_session_timeout=500", "sku")
	stopped, err := db.BeginTx(t.Context(), nil)
	ok(t, err)
	ok(t, fence.Admit(t.Context(), stopped, "sku", 1))
	_, err = stopped.ExecContext(t.Context(), `UPDATE stock SET units = 1`)
	ok(t, err)
	began := time.Now()
	ok(t, admit(t.Context(), db, "sku", 2, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `UPDATE stock SET units = 2`)
		return err
	}))
	if waited := time.Since(began); waited < 200*time.Millisecond {
		t.Errorf("the next one was let in after %v, beside the first", waited)
	}
	if err := stopped.Commit(); err == nil {
		t.Error("the stopped transaction was committed")
	}
	var units int
	ok(t, db.QueryRowContext(t.Context(), `SELECT units FROM stock`).Scan(&units))
	if units != 2 {
		t.Errorf("%d units", units)
	}
}

// One statement checks the token and writes.
func ExampleExec() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection would have a memory of its own
	_, err = db.ExecContext(ctx, `
		CREATE TABLE stock (sku TEXT PRIMARY KEY, units BIGINT, token BIGINT NOT NULL DEFAULT 0);
		INSERT INTO stock (sku, units) VALUES ('sku-1', 10)`)
	if err != nil {
		panic(err)
	}
	write := func(token uint64, left int) error {
		_, err := fence.Exec(ctx, db, "sku-1", token,
			`UPDATE stock SET units = $1, token = $2 WHERE sku = $3 AND token <= $2`, left, token,
			"sku-1")
		return err
	}
	fmt.Println(write(7, 9))
	fmt.Println(write(9, 8)) // the successor
	fmt.Println(write(7, 9)) // late
	// Output:
	// <nil>
	// <nil>
	// holdfast: fence "sku-1": token 7: stale token: a newer holder was here
}

// Admit, first of all, guards what a transaction reads and writes.
func ExampleAdmit() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, fence.Table); err != nil { // once, with the rest of the schema
		panic(err)
	}
	sell := func(token uint64) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fence.Admit(ctx, tx, "sku-1", token); err != nil {
			return err
		}
		// Read the stock, take the money, write down what is left, and then:
		return tx.Commit()
	}
	fmt.Println(sell(7))
	fmt.Println(sell(9))
	fmt.Println(errors.Is(sell(7), fence.ErrStale))
	// Output:
	// <nil>
	// <nil>
	// true
}
