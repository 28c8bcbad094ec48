// Package virtual draws the jitter of simulations, of the virtual time and of who draws.
package virtual

import (
	"hash/fnv"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// Draw is what the code under test draws, see jitter.Use. It follows from who draws and from the
// moment, which follows from the seed.
func Draw() float64 {
	return rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), callers())).Float64()
}

// callers stands for the functions that are being called.
func callers() (sum uint64) {
	var pcs [16]uintptr
	for _, pc := range pcs[:runtime.Callers(3, pcs[:])] {
		h, known := callersOf.Load(pc)
		if !known {
			f := fnv.New64a()
			frames := runtime.CallersFrames([]uintptr{pc})
			for more := true; more; {
				var frame runtime.Frame
				frame, more = frames.Next()
				_, _ = io.WriteString(f, frame.Function)
			}
			h = f.Sum64()
			callersOf.Store(pc, h)
		}
		sum = sum*31 + h.(uint64) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	return sum
}

var callersOf sync.Map // by program counter
