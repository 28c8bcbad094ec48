// Package tracing shows in OpenTelemetry who waited for a lock, how long, and because of whom.
//
//	obs, err := tracing.NewObserver(tracing.Config{})      // the global providers; or name yours
//	b = tracing.Wrap(b, tracing.Store{System: "redis"})    // optional: a span for each question to the store
//	l, err := locker.New(b, locker.Bare, locker.Config{Observer: obs})
//
// Give the tracer provider the option sdktrace.WithIDGenerator(tracing.IDs{}). It lets a claim name the span of the hold that
// it will become, before that hold exists, so that those who wait in other processes can link to it. Without it they link to
// the span of the holder's wait, which is next to it.
//
// Close the client before you shut the tracer provider down: spans get to it some milliseconds late, and Close sees to the
// last ones. So does [Observer.Flush], for who cannot close.
//
// # Spans
//
//   - lock.wait: one Lock or TryLock, from call to return, with an event for each attempt and each wake-up. It links to the
//     span of every holder that it is known to have waited for (holdfast.link = blocked_by).
//   - lock.hold: from the grant to the end. An error if the lock was lost. It links to who came next (unblocked): in its own
//     process always, in another one under [Wrap] on a store with a line.
//   - lock.lease: what the agent of a local line asked the store for, and all holds that used it one after the other. Where
//     goroutines of one process queue for a key, the store knows the lease and not the goroutine, so this is what others link
//     to; it links to the holds. A hold that was not obtained by an agent stands for its lease itself.
//   - lock.release: what Unlock does, and the clean-up of a wait that came to nothing.
//   - lock.renew: a renewal that failed; all of them with [Config.Renewals].
//   - store.acquire, store.renew, store.release, store.watch, store.inspect: under [Wrap], one question to the store.
//
// # Metrics
//
// All names, units and buckets are in names.go. Attributes have few values: the key's class ([Config.KeyClass]) and results.
//
// # What is not shown
//
// No password and no stored value; no full key unless [Config.ShowKeys]. A link can only lead to a span that was sampled.
package tracing
