package contention_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing/contention"
)

// A page of what this process holds and waits for, and the same for the program itself. It needs no
// telemetry.
func Example() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	tracker := contention.New(contention.Config{})
	http.Handle("/debug/locks/", tracker) // where net/http/pprof is served, too
	l, err := locker.New(b, locker.Bare,
		locker.Config{Observer: tracker, Classes: []string{"order-*"}})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	err = locker.Do(ctx, l, "order-17", func(context.Context, struct{}) error {
		fmt.Println("held:", tracker.Snapshot().Holds[0].Key)
		return nil
	})
	fmt.Println(err)
	// Output:
	// held: order-17
	// <nil>
}
