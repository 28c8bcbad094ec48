//go:build !windows

package tracing_test

import (
	"syscall"
	"testing"
	"time"
)

// used is the processor time that this process has had.
func used(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
