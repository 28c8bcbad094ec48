package backendtest

import (
	"runtime"
	"testing"
	"time"
)

// With four goroutines for each processor, each of them has a quarter of one.
func TestSlownessIsSeen(t *testing.T) {
	busy := measureSlowness(4*runtime.GOMAXPROCS(0), 300*time.Millisecond)
	if busy < 2 || busy > mostSlowness {
		t.Errorf("slowness with a quarter of a processor each = %.1f, want about 4", busy)
	}
	t.Logf("slowness of this machine %.2f, with a quarter of it %.2f",
		measureSlowness(runtime.GOMAXPROCS(0), slownessProbe), busy)
}
