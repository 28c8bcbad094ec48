package backend_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/backend"
	_ "github.com/holdfast-go/holdfast/backend/membackend" // makes mem:// known
)

// Programs open a backend by its URL, and give it to locker.New.
func ExampleOpen() {
	ctx := context.Background()
	b, err := backend.Open(ctx, "mem://")
	if err != nil {
		panic(err)
	}
	fmt.Println("tokens:", b.Capabilities().Fencing, b.Close())

	_, err = backend.Open(ctx, "redis://:secret@127.0.0.1") // its package is not imported here
	fmt.Println(errors.Is(err, backend.ErrInvalid))
	// Output:
	// tokens: true <nil>
	// true
}

// One claim, as package locker makes it: an attempt has three answers, and here it is a no.
func ExampleAnswerOf() {
	ctx := context.Background()
	b, err := backend.Open(ctx, "mem://answers")
	if err != nil {
		panic(err)
	}
	defer b.Close()

	claim := func() backend.Claim {
		return backend.Claim{Key: "sku-1", Owner: backend.NewOwner(), TTL: backend.MaxTTL}
	}
	_, err = b.TryAcquire(ctx, claim())
	fmt.Println(backend.AnswerOf(err) == backend.Yes)
	_, err = b.TryAcquire(ctx, claim())
	fmt.Println(backend.AnswerOf(err) == backend.No, errors.Is(err, backend.ErrHeld))
	// A time-out is not a no.
	fmt.Println(backend.AnswerOf(context.DeadlineExceeded) == backend.Unknown)
	// Output:
	// true
	// true true
	// true
}

// What an error or a log may show of a URL.
func ExampleRedact() {
	fmt.Println(backend.Redact("redis://app:secret@redis.internal:6379/0?prefix=shop:"))
	// Output: redis://redis.internal:6379/0
}
