// Package demo shows what locks are for, by a flash sale: buyers in goroutines and in processes buy
// from one stock, and sell more than there is unless they take a lock. [Run] is the tour of it, or
// one sale.
//
//   - options.go, open.go: what is to be done, and where the lock is kept.
//   - ledger.go: the stock, a file that any number of processes append to, and that refuses stale
//     fencing tokens. It also has what the processes tell of their work.
//   - crew.go: the buyers of one process.
//   - sale.go, result.go: one sale, in this process or several, and what came of it.
//   - tour.go, screen.go: the tour, on a terminal, in a pipe and on a page.
package demo
