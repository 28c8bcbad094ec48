// Package waiting holds the ways to wait that holdfast's parts share: when to ask again
// ([Backoff]), and how one subscription wakes many ([Hub]). It knows nothing of locks.
package waiting
