//go:build !linux

package history

import "time"

// Now reads the wall clock, which processes of a host share, too. If it is set while a history is
// recorded, the history is worthless.
func Now() time.Duration { return time.Duration(time.Now().UnixNano()) }
