package tracing_test

import (
	"testing"
	"time"
)

// used is not known here.
func used(*testing.B) time.Duration { return 0 }
