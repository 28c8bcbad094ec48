package history

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

// Now reads CLOCK_MONOTONIC, which has the same origin in all processes of a host and is not
// adjusted. It stands still while the machine sleeps, as Go's own timers do. Its origin means
// nothing.
func Now() time.Duration {
	const clockMonotonic = 1
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic,
		uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic(fmt.Sprintf("history: clock_gettime: %v", errno)) // the kernel always has this clock
	}
	return time.Duration(ts.Nano())
}
