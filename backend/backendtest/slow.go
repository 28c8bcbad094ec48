package backendtest

import (
	"runtime"
	"sync"
	"time"
)

// patience is how long something may take that should happen at once. calibrate makes it longer on
// a busy machine.
var patience = 10 * time.Second

// slowness is how much longer than on an idle machine work takes here, from 1 to mostSlowness. A
// test must not fail because others use the machine, so leases that real time has to outlast, and
// the limits of what must come, are that much longer.
var slowness = 1.0

const (
	mostSlowness  = 8
	slownessProbe = 100 * time.Millisecond
)

// calibrate measures slowness, once per process. It must be called outside of bubbles, before the
// first rule runs.
var calibrate = sync.OnceFunc(func() {
	slowness = measureSlowness(runtime.GOMAXPROCS(0), slownessProbe)
	if slowness < 1.25 { // idle; and leases of whole seconds stay that
		slowness = 1
	}
	patience = slower(patience)
})

// slower is d on a machine as slow as this one.
func slower(d time.Duration) time.Duration { return time.Duration(float64(d) * slowness) }

// measureSlowness has all processors read the clock for a while. Where others want them too, the
// scheduler takes the processor away now and then, and the clock jumps: slowness is all the time
// over the time that was ours.
func measureSlowness(processors int, lasting time.Duration) float64 {
	// Much longer than a reading, much shorter than a time slice.
	const jump = 200 * time.Microsecond
	var mu sync.Mutex
	var all, ours time.Duration
	parallel(processors, func(int) {
		start := time.Now()
		lost, last := time.Duration(0), time.Duration(0)
		for last < lasting {
			now := time.Since(start)
			if now-last > jump {
				lost += now - last
			}
			last = now
		}
		mu.Lock()
		defer mu.Unlock()
		all += last
		ours += last - lost
	})
	return min(float64(all)/float64(max(ours, 1)), mostSlowness)
}
