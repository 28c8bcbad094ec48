//go:build !linux

package suspend

import "time"

// Slept returns how long this machine has been suspended, or a constant where that is not
// known: on Windows and macOS Go's monotonic clock may or may not count suspended time, so that
// only fencing tokens protect from a suspend there.
func Slept(time.Time) time.Duration { return 0 }
