// Package locker hands out locks that other processes respect, as typed guards.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//
//		"github.com/holdfast-go/holdfast/backend"
//		_ "github.com/holdfast-go/holdfast/backend/membackend" // for mem://
//		"github.com/holdfast-go/holdfast/locker"
//	)
//
//	func main() {
//		ctx := context.Background()
//		b, err := backend.Open(ctx, "mem://") // or redis://host, etcd://host: the rest stays
//		if err != nil {
//			panic(err)
//		}
//		l, err := locker.New(b, locker.Bare, locker.Config{})
//		if err != nil {
//			panic(err)
//		}
//		guard, err := l.Lock(ctx, "report") // waits for whoever has it
//		if err != nil {
//			panic(err)
//		}
//		work := guard.Context() // for what is called under the lock: it ends if the lock is lost
//		for page := 1; page <= 3 && work.Err() == nil; page++ {
//			if _, err := guard.Value(); err != nil { // before each effect: is it held?
//				break
//			}
//			fmt.Println("nobody else writes page", page)
//		}
//		fmt.Println("it was held all the time:", guard.Unlock() == nil)
//	}
//
// Begin with [Client.Lock], which waits, [Client.TryLock], which does not, and [Do], which locks,
// runs a function and unlocks. How to wait, for how long to hold, and who may share a lock are each
// an [Option]. A [Binder] puts the value that the lock protects into its [Guard], where nobody
// reaches it without the lock: here [Bare], which has none. [All] locks many keys at once, [Lead]
// elects a leader, [Once] runs a job once in a period, and a [Store] keeps a value that only the
// holder of its lock can save.
//
// The backend decides where locks live, see [backend.Open]. To see what happens to locks, give
// Config.Observer an Observer of package tracing; only who writes another needs [Op] and
// [EventKind]. The [cookbook] has whole programs for twelve jobs, the [guarantees] what each store
// keeps under which fault.
//
// # What a lock promises
//
// A lock here is a lease: the store frees it when its holder has not renewed it for a TTL, so a
// crash cannot block others for ever. Two promises follow, and one does not:
//
//   - Belief exclusion. The periods in which [Guard.Value] and [Guard.Check] of two guards of one
//     key succeed do not overlap, as long as the store keeps what it granted and clocks run at the
//     same rate within one percent. A guard's deadline is counted from before its request was sent,
//     on this machine's monotonic clock. On Linux, time asleep in suspend counts.
//   - A lock that is lost says so. [Guard.Context] ends, with a cause that wraps [ErrLost], before
//     the store can have granted the key to another, without waiting for any answer.
//   - Not promised: that code of a holder which was paused (by the scheduler, a debugger, a virtual
//     machine's host) between its last check and its effect does not run late. No lock service can.
//     [Hold.Token] is for that: it rises strictly from holder to holder, so a resource that
//     remembers the highest token it has seen can refuse a late one.
//
// # What is protected
//
// A [Binder] makes the value of a guard, and then no code has the value without the lock:
//
//	open := func(key string) (*Account, error) { return &Account{Name: key}, nil }
//	l, err := locker.New(b, locker.PerKey(open), locker.Config{})
//	err = locker.Do(ctx, l, "account-7", func(ctx context.Context, a *Account) error { … })
//
// [PerKey] keeps one for each key, for the process: one caller at a time has it, and other
// processes have others. [Scoped] gives it an end with each hold. A [Store] keeps it with its lock,
// for all processes.
//
// # Errors
//
// Errors are an *[Error] with the operation and the key, and work with errors.Is and errors.As:
//
//   - [ErrNotAcquired]: nothing is held. Together with [backend.ErrHeld] (as *[HeldError], which
//     names the holder and estimates the wait), with [ErrEarly] (as *[EarlyError]: see [OncePer]),
//     with ctx.Err() and its cause, or with the store's error.
//   - [ErrLost]: the hold ended although nobody unlocked it. [ErrMaxHold]: it was ended by
//     Config.MaxHold.
//   - [ErrUnlocked]: the guard was unlocked before. [ErrClosed]: the client was closed; a hold that
//     ends by it is still released by its Unlock.
//
// # Time
//
// Three durations are independent of each other: ctx (or [WaitLimit]) bounds the wait, the TTL
// bounds how long a crashed holder blocks others, and Config.MaxHold bounds a hold however
// diligently it is renewed. Choose a TTL of at least ten round trips to the store.
//
// [cookbook]: https://github.com/holdfast-go/holdfast/blob/main/docs/cookbook.md
// [guarantees]: https://github.com/holdfast-go/holdfast/blob/main/docs/guarantees.md
package locker
