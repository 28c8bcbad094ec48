//go:build !linux

package locker

import "time"

// suspended returns how long this machine has been suspended, or a constant where that is not
// known: on Windows and macOS Go's monotonic clock may or may not count suspended time, so that
// only fencing tokens protect from a suspend there.
func suspended(time.Time) time.Duration { return 0 }
