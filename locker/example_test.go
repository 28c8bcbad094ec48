package locker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// A value is made anew for each hold, here with the hold's fencing token. The stock remembers the
// highest token that it has seen, and refuses whoever comes with a lower one.
func ExampleBinder() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()

	type shelf struct{ token uint64 }
	bind := func(_ context.Context, h locker.Hold) (shelf, error) { return shelf{h.Token}, nil }
	l, err := locker.New(b, bind, locker.Config{TTL: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	left, highest := 2, uint64(0) // the stock, and the highest token it has seen
	for range 3 {
		err = locker.Do(ctx, l, "sku-1", func(ctx context.Context, s shelf) error {
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

// What a guard protects is opened with the hold and closed before the lock is released.
func ExampleScoped() {
	ctx := context.Background()
	b, _ := backend.Open(ctx, "mem://scoped")
	defer b.Close()
	dir, _ := os.MkdirTemp("", "ledger")
	defer os.RemoveAll(dir)

	open := func(_ context.Context, h locker.Hold) (*os.File, error) {
		return os.OpenFile(filepath.Join(dir, h.Key), os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	}
	l, err := locker.New(b, locker.Scoped(open, (*os.File).Close), locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	var kept *os.File
	err = locker.Do(ctx, l, "ledger", func(_ context.Context, f *os.File) error {
		kept = f
		_, err := f.WriteString("sold one")
		return err
	})
	fmt.Println(err)
	_, err = kept.WriteString("and another") // after the lock is gone, so is the file
	fmt.Println(errors.Is(err, os.ErrClosed))
	// Output:
	// <nil>
	// true
}

// A value that lives beside its lock: loaded by the request that locks, saved by the one that
// unlocks.
func ExampleStore() {
	ctx := context.Background()
	b, _ := backend.Open(ctx, "mem://store") // or redis://, rueidis://, etcd://
	defer b.Close()

	type shelf struct{ Left, Sold int }
	shelves, err := locker.NewStore(b, locker.JSON[shelf](), locker.Config{TTL: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	defer shelves.Close()

	_ = shelves.Update(ctx, "sku-1", func(context.Context, shelf) (shelf, error) {
		return shelf{Left: 2}, nil
	})
	errSoldOut := errors.New("sold out")
	for range 3 {
		err = shelves.Update(ctx, "sku-1", func(_ context.Context, s shelf) (shelf, error) {
			if s.Left == 0 {
				return s, errSoldOut // nothing is saved
			}
			return shelf{s.Left - 1, s.Sold + 1}, nil
		})
	}
	fmt.Println(errors.Is(err, errSoldOut))
	s, token, err := shelves.Get(ctx, "sku-1") // needs no lock
	fmt.Printf("%+v %v %v\n", s, token > 0, err)
	// Output:
	// true
	// {Left:0 Sold:2} true <nil>
}

// A job that every instance tries, and one of them runs.
func ExampleOnce() {
	ctx := context.Background()
	b, _ := backend.Open(ctx, "mem://once")
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	for range 3 { // three instances, a minute apart by their clocks
		ran, err := locker.Once(ctx, l, "nightly report", 18*time.Hour,
			func(context.Context, struct{}) error {
				return nil // however short it is
			})
		fmt.Println(ran, err)
	}
	// Output:
	// true <nil>
	// false <nil>
	// false <nil>
}

// One call's work must not take long, whatever the others may.
func ExampleMaxHold() {
	ctx := context.Background()
	b, _ := backend.Open(ctx, "mem://maxhold")
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	err = locker.Do(ctx, l, "sku-1", func(ctx context.Context, _ struct{}) error {
		<-ctx.Done() // work that hangs
		return context.Cause(ctx)
	}, locker.MaxHold(10*time.Millisecond))
	fmt.Println(errors.Is(err, locker.ErrMaxHold))
	// Output: true
}

// A hold that goes to another process, in a message.
func ExampleGuard_Detach() {
	ctx := context.Background()
	b, _ := backend.Open(ctx, "mem://detach")
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	handler, _ := l.Lock(ctx, "report", locker.Reentrant(backend.NewOwner()))
	ticket, err := handler.Detach()
	fmt.Println(err)
	_, err = l.TryLock(ctx, "report")
	fmt.Println(errors.Is(err, backend.ErrHeld)) // all the way

	worker, err := l.Adopt(ctx, ticket) // there
	fmt.Println(err)
	_, err = l.Adopt(ctx, ticket) // the message comes twice
	fmt.Println(errors.Is(err, locker.ErrLost))
	fmt.Println(worker.Unlock())
	// Output:
	// <nil>
	// true
	// <nil>
	// true
	// <nil>
}
