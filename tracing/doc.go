// Package tracing shows in OpenTelemetry who waited for a lock, how long, and because of whom.
//
//	obs, err := tracing.NewObserver(tracing.Config{})   // the global providers; or name yours
//	b = tracing.Wrap(b, tracing.Store{System: "redis"}) // optional: a span for each request
//	cfg := locker.Config{Observer: obs, Classes: []string{"order-*"}}
//	l, err := locker.New(b, locker.Bare, cfg)
//
// # Spans
//
//   - "lock order", of a key of class order (a key without a class: "lock"): one Lock or TryLock,
//     from the call to the end of the hold, with an event where the hold begins. It is the span in
//     [locker.Guard.Context]. An error if Lock failed, or if the lock was lost. Its claim names it
//     in the store, which shows that to those who wait.
//   - "lock.wait order": the part of it in which others were in its way; there only if it had to
//     wait.
//   - "held by shop", below a wait of 10 milliseconds or more ([Config.BarsOver]): when a process
//     of service shop is known to have held meanwhile. It links to the holder's span (holdfast.link
//     = blocked_by).
//   - lock.lease: what the process asks the store for on behalf of its goroutines that wait for one
//     key, under the lock of the first of them, and until its last hold is over. It links to the
//     locks that used it, and they to it.
//   - lock.release: a release that failed, by Unlock or of a claim that came to nothing.
//   - lock.renew: a renewal that failed.
//   - store.acquire and so on: under [Wrap], one request to the store.
//
// They begin and end when it happens, in the goroutine in which it happens: there is nothing to
// flush but the tracer provider. With [Config.SpansOver] they are made when they end.
//
// # Metrics
//
// All names, units and buckets are in names.go. Attributes have few values: the lock's class, which
// locker.Config.Classes or [Config.KeyClass] says, and results.
//
// # What is not shown
//
// No password and no stored value; no full key unless [Config.ShowKeys]. A [locker.Note] is shown
// in full. A holder that was not sampled is told without a link, which would lead nowhere.
package tracing
