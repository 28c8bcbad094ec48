package redisbackend_test

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/redisbackend"
)

// By URL, which can come from a file or a variable: the program knows no store.
func Example() {
	ctx := context.Background()
	b, err := backend.Open(ctx, "redis://"+os.Getenv("REDIS_ADDR")+"/0?max_ttl=30s")
	if err != nil {
		panic(err)
	}
	defer b.Close()
	fmt.Println("queue:", b.Capabilities().Queue, "tokens:", b.Capabilities().Fencing)
	// Output: queue: true tokens: true
}

// With the go-redis client that the program has. It stays the program's, and is closed after the
// backend.
func ExampleNew() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
	defer client.Close()
	b, err := redisbackend.New(client, redisbackend.Config{Prefix: "shop:"})
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
		return client.Incr(ctx, "sold").Err()
	})
	fmt.Println(err, client.Get(ctx, "sold").Val())
	// Output: <nil> 1
}
