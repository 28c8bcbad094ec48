package server

import (
	"time"

	"golang.org/x/sys/unix"
)

// exactly makes the calling thread's sleeps as exact as the machine has them, instead of 50 µs.
func exactly() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

// pause blocks the calling thread.
func pause(d time.Duration) {
	if d > 0 {
		t := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&t, nil) // a signal ends it early, which a measurement survives
	}
}
