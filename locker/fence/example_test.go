package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/fence"
	"github.com/holdfast-go/holdfast/redisbackend"
)

// The stock is in the memory of this process, which refuses those who are late.
func ExampleGate() {
	ctx := context.Background()
	var gate fence.Gate
	left := 10
	sell := func(token uint64) error {
		return gate.Admit(ctx, "sku-1", token, func() error {
			left--
			return nil
		})
	}
	fmt.Println(sell(7)) // the holder with token 7
	fmt.Println(sell(9)) // its successor
	fmt.Println(sell(7)) // late: it was stopped meanwhile
	fmt.Println(left, "left")
	// Output:
	// <nil>
	// <nil>
	// holdfast: fence "sku-1": token 7 after 9: stale token: a newer holder was here
	// 8 left
}

// The stock is in a table, and its row has a column for the token. (No database comes with this
// module: with PostgreSQL and SQLite, internal/fencing runs the same.)
func ExampleExec() {
	// Its Binder makes the token the value.
	_ = func(ctx context.Context, l locker.Locker[uint64], db *sql.DB) error {
		return locker.Do(ctx, l, "sku-1", func(ctx context.Context, token uint64) error {
			_, err := fence.Exec(ctx, db, "sku-1", token,
				"UPDATE stock SET left_over = left_over - 1, token = $1 WHERE sku = $2 "+
					"AND token <= $1", token, "sku-1")
			return err // a fence.ErrStale changed nothing
		})
	}
}

// The stock is behind a server. What the guard protects is a client that sends the token.
func ExampleHandler() {
	stock := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "sold one of", r.URL.Path)
	})
	sku := func(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/stock/") }
	srv := httptest.NewServer(fence.Handler(new(fence.Gate), sku, stock))
	defer srv.Close()

	ctx := context.Background()
	b, err := backend.Open(ctx, "redis://"+redisAddr)
	if err != nil {
		panic(err)
	}
	defer b.Close()
	bind := func(_ context.Context, h locker.Hold) (*http.Client, error) {
		return &http.Client{Transport: fence.Transport{Token: h.Token}}, nil
	}
	l, err := locker.New(b, bind, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	var late *http.Client
	sell := func(ctx context.Context, c *http.Client) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/stock/sku-1",
			http.NoBody)
		if err != nil {
			return err
		}
		reply, err := c.Do(r)
		if err != nil {
			return err
		}
		defer reply.Body.Close()
		fmt.Println(reply.Status)
		late = c
		return fence.Refused(reply) // ErrStale, if it was
	}
	_ = locker.Do(ctx, l, "sku-1", sell)
	first := late
	_ = locker.Do(ctx, l, "sku-1", sell)
	err = sell(ctx, first) // whoever goes on with a client of a hold that is over
	fmt.Println(errors.Is(err, fence.ErrStale))
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	// Output:
	// 200 OK
	// 200 OK
	// 412 Precondition Failed
	// true
}

// The stock is in the Redis that has the lock, and so is the proof: a late holder is refused from
// the moment at which another holds.
func ExampleInRedis() {
	ctx := context.Background()
	// The program's own; rueidisbackend has the same methods.
	client := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer client.Close()
	b, err := redisbackend.New(client, redisbackend.Config{})
	if err != nil {
		panic(err)
	}
	defer b.Close()
	bind := func(_ context.Context, h locker.Hold) (*fence.Redis, error) {
		return fence.InRedis(b, h), nil
	}
	l, err := locker.New(b, bind, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	client.Set(ctx, "stock:{sku-2}", 10, 0)
	var late *fence.Redis
	err = locker.Do(ctx, l, "sku-2", func(ctx context.Context, data *fence.Redis) error {
		late = data
		left, err := data.Eval(ctx, "return redis.call('DECR', KEYS[1])", []string{"stock:{sku-2}"})
		fmt.Println("left:", left)
		return err
	})
	fmt.Println(err)
	err = late.Set(ctx, "stock:{sku-2}", "10") // the lock is not held any more
	fmt.Println(errors.Is(err, fence.ErrStale), client.Get(ctx, "stock:{sku-2}").Val())
	// Output:
	// left: 9
	// <nil>
	// true 9
}
