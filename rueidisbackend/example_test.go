package rueidisbackend_test

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/rueidisbackend"
)

// By URL. The same locks as by package redisbackend: programs with one and the other exclude each
// other.
func Example() {
	ctx := context.Background()
	b, err := backend.Open(ctx, "rueidis://"+os.Getenv("REDIS_ADDR"))
	if err != nil {
		panic(err)
	}
	defer b.Close()
	fmt.Println("hears of a loss at once:", b.Capabilities().Loss)
	// Output: hears of a loss at once: true
}

// With the options that the program has for its own rueidis client.
func ExampleNew() {
	ctx := context.Background()
	b, err := rueidisbackend.New(
		rueidis.ClientOption{InitAddress: []string{os.Getenv("REDIS_ADDR")}},
		rueidisbackend.Config{})
	if err != nil {
		panic(err)
	}
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	err = locker.Do(ctx, l, "sku-1", func(context.Context, struct{}) error {
		fmt.Println("locked")
		return nil
	})
	fmt.Println(err)
	// Output:
	// locked
	// <nil>
}
