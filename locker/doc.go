// Package locker hands out locks that other processes respect, as typed guards.
//
//	l, err := locker.New(b, locker.Fixed(accounts), locker.Config{})
//	err = locker.Do(ctx, l, "account-7", func(ctx context.Context, a *Accounts) error { … })
//
// The backend b decides where locks live; see [github.com/holdfast-go/holdfast/backend.Open].
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
// A [Binder] makes the value of a guard. [Scoped] gives it an end; a [Store] keeps it with its
// lock, so that only its holder can save it. [Once] runs a job once in a period.
//
// # Errors
//
// Errors are an *[Error] with the operation and the key, and work with errors.Is and errors.As:
//
//   - [ErrNotAcquired]: nothing is held. Together with [backend.ErrHeld] (as *[HeldError], which
//     names the holder and estimates the wait), with ctx.Err() and its cause, or with the store's
//     error.
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
package locker
