package locker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	_ "github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// The README shows the body of this example.
func Example() {
	ctx := context.Background()
	b, err := backend.Open(ctx, "mem://") // or redis://host:6379: nothing below changes
	if err != nil {
		panic(err)
	}
	defer b.Close()

	type shelf struct{ token uint64 } // what the guards protect: made anew for each hold, with its fencing token
	bind := func(_ context.Context, h locker.Hold) (shelf, error) { return shelf{h.Token}, nil }
	l, err := locker.New(b, bind, locker.Config{TTL: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	left, highest := 2, uint64(0) // the stock, and the highest token it has seen
	for range 3 {
		err = locker.Do(ctx, l, "sku-1", func(ctx context.Context, s shelf) error { // ctx ends if the lock is lost
			if s.token < highest || left == 0 {
				return errors.New("sold out, or a newer holder was here")
			}
			left, highest = left-1, s.token
			fmt.Println("sold one, left:", left)
			return nil
		})
	}
	fmt.Println(err)
	// Output:
	// sold one, left: 1
	// sold one, left: 0
	// sold out, or a newer holder was here
}
