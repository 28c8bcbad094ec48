package locker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// TryLock does not wait. Its error says who is in the way.
func ExampleClient_TryLock() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{Service: "reports"})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	g, err := l.TryLock(ctx, "sku-1")
	fmt.Println(g.Hold().Key, err)

	_, err = l.TryLock(ctx, "sku-1")
	fmt.Println(errors.Is(err, locker.ErrNotAcquired))
	if held := (&backend.HeldError{}); errors.As(err, &held) {
		fmt.Println("held by", held.Holder.Service)
	}
	fmt.Println(g.Unlock())
	// Output:
	// sku-1 <nil>
	// true
	// held by reports
	// <nil>
}

// The wait has a limit of its own; the guard's context ends with the hold and not with the limit.
func ExampleWaitLimit() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	g, err := l.Lock(ctx, "sku-1", locker.WaitLimit(time.Minute))
	fmt.Println(err)
	_, err = l.Lock(ctx, "sku-1", locker.WaitLimit(10*time.Millisecond))
	fmt.Println(errors.Is(err, locker.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))
	fmt.Println(g.Unlock())
	// Output:
	// <nil>
	// true true
	// <nil>
}

// All or none, without deadlock, whatever order others name the keys in.
func ExampleAll() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	type account struct{ cents int }
	open := func(string) (*account, error) { return &account{100}, nil }
	l, err := locker.New(b, locker.PerKey(open), locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	both, err := locker.All(ctx, l, []string{"bob", "ann"})
	if err != nil {
		panic(err)
	}
	accounts, err := both.Values()
	if err != nil {
		panic(err)
	}
	accounts[0].cents -= 30
	accounts[1].cents += 30
	fmt.Println(both.Keys(), accounts[0].cents, accounts[1].cents)
	fmt.Println(both.Unlock())
	// Output:
	// [ann bob] 70 130
	// <nil>
}

// Every instance calls Lead, and one of them runs the function. Its ctx ends if leadership is lost;
// then Lead campaigns again.
func ExampleLead() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	err = locker.Lead(ctx, l, "scheduler", func(ctx context.Context, _ struct{}) error {
		fmt.Println("leading:", ctx.Err() == nil)
		return nil // resigns
	})
	fmt.Println(err)
	// Output:
	// leading: true
	// <nil>
}

// Readers hold together. A writer waits for them, and those who come after it wait for the writer.
func ExampleShared() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	one, err := l.TryLock(ctx, "prices", locker.Shared())
	fmt.Println("reader:", err)
	two, err := l.TryLock(ctx, "prices", locker.Shared())
	fmt.Println("reader:", err)
	_, err = l.TryLock(ctx, "prices")
	fmt.Println("writer is refused:", errors.Is(err, backend.ErrHeld))
	fmt.Println(one.Unlock(), two.Unlock())
	// Output:
	// reader: <nil>
	// reader: <nil>
	// writer is refused: true
	// <nil> <nil>
}

// A semaphore: at most two at a time, in all processes together.
func ExamplePermit() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	one, err := l.TryLock(ctx, "exports", locker.Permit(2))
	fmt.Println(err)
	two, err := l.TryLock(ctx, "exports", locker.Permit(2))
	fmt.Println(err)
	_, err = l.TryLock(ctx, "exports", locker.Permit(2))
	fmt.Println("a third is refused:", errors.Is(err, backend.ErrHeld))
	fmt.Println(one.Unlock(), two.Unlock())
	// Output:
	// <nil>
	// <nil>
	// a third is refused: true
	// <nil> <nil>
}

// A semaphore that stands for 8 GB of memory, of which each job takes what it needs.
func ExampleWeight() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	const all = 8
	video, err := l.TryLock(ctx, "memory", locker.Permit(all), locker.Weight(6))
	fmt.Println("6 GB:", err)
	sound, err := l.TryLock(ctx, "memory", locker.Permit(all), locker.Weight(2))
	fmt.Println("2 GB:", err)
	_, err = l.TryLock(ctx, "memory", locker.Permit(all))
	fmt.Println("1 GB is refused:", errors.Is(err, backend.ErrHeld))
	_, err = l.TryLock(ctx, "memory", locker.Permit(all), locker.Weight(9))
	fmt.Println("9 GB is a mistake:", errors.Is(err, backend.ErrInvalid))
	fmt.Println(video.Unlock(), sound.Unlock())
	// Output:
	// 6 GB: <nil>
	// 2 GB: <nil>
	// 1 GB is refused: true
	// 9 GB is a mistake: true
	// <nil> <nil>
}

// Who gives the same owner may enter again, also from another process. The key is free when every
// hold is released.
func ExampleReentrant() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	outer, err := l.TryLock(ctx, "order-17", locker.Reentrant("checkout 4711"))
	fmt.Println(err)
	inner, err := l.TryLock(ctx, "order-17", locker.Reentrant("checkout 4711"))
	fmt.Println(err)
	fmt.Println(inner.Unlock())
	_, err = l.TryLock(ctx, "order-17", locker.Reentrant("checkout 4712"))
	fmt.Println("another owner is refused:", errors.Is(err, backend.ErrHeld))
	fmt.Println(outer.Unlock())
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// another owner is refused: true
	// <nil>
}

// A value for each key, which only its guard gives away: a sync.Mutex with its value inside, for
// all who lock. The value is this process's.
func ExamplePerKey() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	type shelf struct{ left int }
	open := func(sku string) (*shelf, error) { return &shelf{left: 2}, nil }
	l, err := locker.New(b, locker.PerKey(open), locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	for _, sku := range []string{"sku-1", "sku-1", "sku-2"} {
		g, err := l.Lock(ctx, sku) // *locker.Guard[*shelf]
		if err != nil {
			panic(err)
		}
		s, err := g.Value()
		if err != nil {
			panic(err)
		}
		s.left--
		fmt.Println(sku, s.left)
		_ = g.Unlock()
		_, err = g.Value()
		fmt.Println(errors.Is(err, locker.ErrUnlocked))
	}
	// Output:
	// sku-1 1
	// true
	// sku-1 0
	// true
	// sku-2 1
	// true
}

// One value for all keys: guards of two keys have it at once, so it is one that is safe for
// concurrent use.
func ExampleFixed() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	var audit bytes.Buffer
	l, err := locker.New(b, locker.Fixed(log.New(&audit, "", 0)), locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	for _, sku := range []string{"sku-1", "sku-2"} {
		err = locker.Do(ctx, l, sku, func(_ context.Context, audit *log.Logger) error {
			audit.Println("sold", sku)
			return nil
		})
	}
	fmt.Println(err)
	fmt.Print(audit.String())
	// Output:
	// <nil>
	// sold sku-1
	// sold sku-2
}

// A caller with little time learns at once that it would wait in vain. The estimate comes from how
// long this client's own holds of the key have lately been.
func ExampleFailFast() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	g, err := l.Lock(ctx, "sku-1")
	if err != nil {
		panic(err)
	}
	time.Sleep(500 * time.Millisecond) // work
	_ = g.Unlock()

	g, err = l.Lock(ctx, "sku-1")
	if err != nil {
		panic(err)
	}
	_, err = l.Lock(ctx, "sku-1", locker.FailFast(), locker.WaitLimit(400*time.Millisecond))
	fmt.Println(errors.Is(err, locker.ErrWouldTimeout))
	fmt.Println(g.Unlock())
	// Output:
	// true
	// <nil>
}

// A lock that is lost says so: the channel is closed, the context has ended, and the value is
// refused. Here somebody has ended the hold by hand.
func ExampleGuard_Lost() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	g, err := l.Lock(ctx, "sku-1")
	if err != nil {
		panic(err)
	}
	_, err = l.ForceRelease(ctx, "sku-1", g.Hold().Token)
	fmt.Println("released by force:", err)
	_ = g.Check(ctx) // asks the store now, as the next renewal would

	<-g.Lost()
	_, err = g.Value()
	fmt.Println(errors.Is(err, locker.ErrLost),
		errors.Is(context.Cause(g.Context()), locker.ErrLost))
	fmt.Println(errors.Is(g.Unlock(), locker.ErrLost))
	// Output:
	// released by force: <nil>
	// true true
	// true
}

// Who holds what, for people and tools.
func ExampleClient_List() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{Service: "reports"})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	err = locker.Do(ctx, l, "report/daily", func(ctx context.Context, _ struct{}) error {
		for lock, err := range l.List(ctx, "report/") {
			if err != nil {
				return err
			}
			fmt.Println(lock.Key, "is held by", lock.State.Holders[0].Meta.Service)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// report/daily is held by reports
	// <nil>
}

// Who leads: first who does now, then each change.
func ExampleClient_Holders() {
	ctx, b := context.Background(), membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{Service: "reports"})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	var leader *locker.Guard[struct{}]
	for state, err := range l.Holders(ctx, "leader") {
		switch {
		case err != nil:
			fmt.Println("the store does not answer:", err)
		case len(state.Holders) > 0:
			fmt.Println("leads:", state.Holders[0].Meta.Service)
			err = leader.Unlock()
		case leader == nil:
			fmt.Println("nobody leads yet")
			leader, err = l.Lock(ctx, "leader")
		default:
			fmt.Println("nobody leads any more")
			return
		}
		if err != nil {
			panic(err)
		}
	}
	// Output:
	// nobody leads yet
	// leads: reports
	// nobody leads any more
}
