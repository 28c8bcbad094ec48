// Package waiting holds the ways to wait that holdfast's parts share: when to ask again ([Backoff]), how one
// subscription wakes many ([Hub]), and how the goroutines of one process wait for each other ([Line]). It knows nothing of locks.
package waiting
