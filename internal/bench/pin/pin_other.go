//go:build !linux

// Package pin puts processes on CPUs and reads what they used of them.
package pin

import (
	"errors"
	"time"
)

// To is for Linux only.
func To(int, ...int) error { return errors.ErrUnsupported }

// Used is for Linux only.
func Used() time.Duration { return 0 }

// Busy is for Linux only.
func Busy() time.Duration { return 0 }

// Ours is for Linux only.
func Ours() time.Duration { return 0 }

// Of is for Linux only.
func Of(int) time.Duration { return 0 }
