// Package demo is the command holdfast demo: a flash sale. Buyers in several goroutines and
// processes buy from one stock, which sells more than there is unless they take a lock.
//
//   - ledger.go: the stock, a file that any number of processes append to, and that refuses stale
//     fencing tokens.
//   - crew.go: the buyers of one process.
//   - fleet.go, worker.go: several processes, seen from the parent and from the child.
//   - tally.go, stats.go, report.go: what came of it.
//   - sale.go: all of it together; command.go: its flags.
package demo
