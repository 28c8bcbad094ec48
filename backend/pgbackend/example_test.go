package pgbackend_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/pgbackend"
	"github.com/holdfast-go/holdfast/locker"
)

// By URL.
func Example() {
	ctx := context.Background()
	b, err := backend.Open(ctx, os.Getenv("POSTGRES_URL"))
	if err != nil {
		panic(err)
	}
	defer b.Close()
	fmt.Println("queue:", b.Capabilities().Queue, "tokens:", b.Capabilities().Fencing)
}

// Lock and data in one transaction: whoever has lost the lock cannot commit.
func ExampleInTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("POSTGRES_URL"))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	b, err := pgbackend.New(ctx, pool, pgbackend.Config{})
	if err != nil {
		panic(err)
	}
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	err = locker.Do(ctx, l, "sku-1", func(ctx context.Context, _ struct{}) error {
		hold, _ := locker.HoldFrom(ctx)
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := pgbackend.InTx(ctx, tx, hold.StoreKey, hold.Token); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE stock SET left_over = left_over - 1 WHERE sku = 'sku-1'")
			return err
		})
	})
	if err != nil {
		panic(err)
	}
}
