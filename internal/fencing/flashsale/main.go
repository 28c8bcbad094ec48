// Command flashsale is the program of docs/cookbook.md that sells behind an SQL fence. A test
// compares it with the page.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/fence"
	_ "github.com/holdfast-go/holdfast/redisbackend"
	_ "modernc.org/sqlite"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	b, err := backend.Open(ctx, os.Getenv("HOLDFAST_BACKEND"))
	check(err)
	l, err := locker.New(b, locker.Bare, locker.Config{})
	check(err)
	db, err := sql.Open("sqlite", "shop.db")
	check(err)
	const show, sell = `UPDATE stock SET token = $1 WHERE token <= $1`,
		`UPDATE stock SET units = $2 WHERE token <= $1`
	_, err = db.Exec(`CREATE TABLE stock (units INT, token INT); INSERT INTO stock VALUES (10, 0)`)
	check(err)
	left, first := 0, ^uint64(0)
	for range 2 {
		check(locker.Do(ctx, l, "sku-1", func(ctx context.Context, _ struct{}) error {
			h, _ := locker.HoldFrom(ctx)
			_, err := fence.Exec(ctx, db, h.Key, h.Token, show, h.Token)
			check(err) // from now on no older holder writes
			check(db.QueryRowContext(ctx, `SELECT units FROM stock`).Scan(&left))
			left, first = left-1, min(first, h.Token)
			_, err = fence.Exec(ctx, db, h.Key, h.Token, sell, h.Token, left)
			return err
		}))
		fmt.Println("sold one, left:", left)
	}
	_, err = fence.Exec(ctx, db, "sku-1", first, sell, first, 9)
	fmt.Println("the first buyer, late, is refused:", errors.Is(err, fence.ErrStale))
}
