package locker

import (
	"fmt"
	"runtime"
	"strings"
)

// A site is where a lock was taken. It is unknown where the lease was handed on within the process,
// which takes no longer than a look at the stack.
type site [3]uintptr // of Do or All, of Lead, and the caller's

// siteSkip is how many frames are between the place where a site is taken, in obtain, and the
// caller of Lock.
const siteSkip = 5

// String names the first caller outside of this package.
func (s *site) String() string {
	if s[0] == 0 {
		return "an unknown place"
	}
	return outside(s[:])
}

// outside names the first caller in a stack that is outside of this package, or the last there is.
func outside(stack []uintptr) string {
	frames := runtime.CallersFrames(stack)
	for {
		frame, more := frames.Next()
		if !more || !strings.Contains(frame.Function, "/holdfast/locker.") {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
	}
}
