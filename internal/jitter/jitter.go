// Package jitter draws the jitter of everything that waits at random. It is one place, so that a
// simulation can have it follow from its seed; what must not be guessed, such as the names of
// owners, is not drawn here.
package jitter

import (
	"math/rand/v2"
	"time"
)

var source = rand.Float64

// Use draws from f, which returns a number from 0 up to 1 and may be called concurrently, until
// restore is called. It is for tests, and is to be called while nobody draws.
func Use(f func() float64) (restore func()) {
	before := source
	source = f
	return func() { source = before }
}

// Float64 draws a number from 0 up to 1. It may be called concurrently.
func Float64() float64 { return source() }

// N draws a duration from 0 up to d, which is positive.
func N(d time.Duration) time.Duration { return time.Duration(source() * float64(d)) }
