package suspend

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	// Stands still while the machine is suspended; Go's timers and time.Since run on it (go#24595).
	clockMonotonic = 1
	clockBoottime  = 7 // counts on
)

// A reading is what Slept found, and when.
type reading struct {
	at    time.Time // by the monotonic clock
	wall  int64     // by the wall clock, in nanoseconds
	slept time.Duration
}

var latest atomic.Pointer[reading]

// readFor is how long a reading is good for, by the monotonic clock: two system calls are a fifth
// of what a lock costs that is handed on within the process.
const readFor = time.Millisecond

// Slept returns how long this machine had been suspended at the time at, which is now, since it was
// booted. Only differences of it mean anything.
//
// A suspend moves the wall clock against the monotonic one, as the kernel adds the time slept to
// the one and to CLOCK_BOOTTIME in the same step. So where the two clocks have gone the same way
// since the last reading, it stands. (A suspend is missed if somebody also sets the wall clock back
// by what it took, within the same millisecond that the machine was awake. Any other step of the
// wall clock is a reason to read, and no more.)
func Slept(at time.Time) time.Duration {
	last := latest.Load()
	if last != nil {
		ran := at.Sub(last.at)
		stepped := time.Duration(at.UnixNano()-last.wall) - ran
		if ran.Abs() < readFor && stepped.Abs() < Napless/4 {
			return last.slept
		}
	}
	slept := clock(clockBoottime) - clock(clockMonotonic)
	latest.Store(&reading{at, at.UnixNano(), slept})
	return slept
}

// clock reads a clock of the kernel, or 0 where that is forbidden: then no sleep is noticed.
func clock(id uintptr) time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id,
		uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
