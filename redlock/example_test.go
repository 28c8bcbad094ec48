package redlock_test

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/redlock"
)

// Any backends are nodes. Here they are in memory; in production, three or five independent Redis
// servers with max_ttl, opened by URL: redlock://?node=redis%3A%2F%2Fa%3A6379&node=…
func Example() {
	ctx := context.Background()
	nodes := []backend.Backend{membackend.New(), membackend.New(), membackend.New()}
	b, err := redlock.New(nodes, redlock.Config{})
	if err != nil {
		panic(err)
	}
	defer b.Close() // and the nodes
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	_ = nodes[2].Close() // a minority may be away
	err = locker.Do(ctx, l, "sku-1", func(context.Context, struct{}) error {
		fmt.Println("held by a majority")
		return nil
	})
	fmt.Println(err)
	// Output:
	// held by a majority
	// <nil>
}
