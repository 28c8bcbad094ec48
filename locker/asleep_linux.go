package locker

import (
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1 // stands still while the machine is suspended; Go's timers and time.Since run on it (go#24595)
	clockBoottime  = 7 // counts on
)

// asleep returns how long this machine has been suspended since it was booted. Only differences of it mean anything.
func asleep() time.Duration { return clock(clockBoottime) - clock(clockMonotonic) }

// clock reads a clock of the kernel, or 0 where that is forbidden: then no sleep is noticed.
func clock(id uintptr) time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
