package locker_test

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/backend"
	// for mem://, as redisbackend for redis://
	_ "github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// Do locks, runs and unlocks. The URL decides where the lock is kept.
func Example() {
	ctx := context.Background()
	// Or redis://host:6379, etcd://host:2379: nothing below changes.
	b := must(backend.Open(ctx, "mem://"))
	defer b.Close()
	l := must(locker.New(b, locker.Bare, locker.Config{}))
	defer l.Close()
	err := locker.Do(ctx, l, "sku-1", func(ctx context.Context, _ struct{}) error {
		return sell(ctx) // ctx ends if the lock is lost
	})
	fmt.Println(err)
	// Output:
	// sold one
	// <nil>
}

func sell(context.Context) error {
	fmt.Println("sold one")
	return nil
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
