package main

import (
	"fmt"
	"math"

	"github.com/holdfast-go/holdfast/backend"
)

// clockAllowance is how far the rates of two clocks may differ, as holders allow for; see package
// locker.
const clockAllowance = 0.01

// kernelClock judges how the kernel corrects the rate of its clocks, the monotonic one included: by
// tick (in µs, 10000 of a clock that is left alone) and by freq (in 2⁻¹⁶ millionths), see
// adjtimex(2).
//
// Safety: a holder stops believing by this machine's monotonic clock. If that is slowed down by
// more than holders allow for, the store grants the lock again before.
func kernelClock(tick, freq int64, synchronised bool) backend.Finding {
	const change = "slew the clock slowly: " +
		"chrony's maxslewrate is 83333 (8.3%) unless it is set to 5000, say"
	rate := float64(tick-10000)/10000 + float64(freq)/(1<<16)/1e6
	f := backend.Finding{Check: "clock rate", Level: backend.OK}
	f.Text = fmt.Sprintf("the kernel makes it %.2g%% faster", 100*rate)
	if rate < 0 {
		f.Text = fmt.Sprintf("the kernel makes it %.2g%% slower", -100*rate)
	}
	switch {
	case rate < -clockAllowance:
		f.Level, f.Change = backend.Fail, change
		f.Text += ": holders here believe for too long, as they allow for 1%"
	case rate > clockAllowance:
		f.Level, f.Change = backend.Warn, change
		f.Text += ": holders here stop too early, as they allow for 1%"
	case math.Abs(rate) < 1e-7:
		f.Text = "the kernel leaves it alone"
	}
	if !synchronised {
		f.Text += "; not synchronised, which locks do not need"
	}
	return f
}
