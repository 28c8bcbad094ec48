package demo

import (
	"math"
	"slices"
	"time"
)

// quantile returns the smallest of sorted that a share q of them does not exceed (the nearest
// rank), or 0 if there is none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// waits says how long buyers waited for the lock.
type waits struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func waitsOf(all []time.Duration) waits {
	sorted := slices.Sorted(slices.Values(all))
	return waits{ms(quantile(sorted, 0.5)), ms(quantile(sorted, 0.99)), ms(quantile(sorted, 1))}
}

// A share is what one buyer got.
type share struct {
	Process int  `json:"process"`
	Worker  int  `json:"worker"`
	Sold    int  `json:"sold"`
	Killed  bool `json:"killed,omitzero"`
}

// sharesOf returns a share for every buyer there was, in order, those who got nothing included.
func sharesOf(sold map[buyer]int, processes, workers, killed int) (shares []share) {
	for p := 1; p <= processes; p++ {
		for w := 1; w <= workers; w++ {
			shares = append(shares, share{p, w, sold[buyer{p, w}], p == killed})
		}
	}
	return shares
}

// fairness compares the buyers who were not killed.
type fairness struct {
	Min   int     `json:"min"` // the smallest share
	Max   int     `json:"max"`
	Ratio float64 `json:"min_by_max"` // 1 is fair; 0 if somebody got nothing
}

func fairnessOf(shares []share) (f fairness) {
	f.Min = math.MaxInt
	for _, s := range shares {
		if !s.Killed {
			f.Min, f.Max = min(f.Min, s.Sold), max(f.Max, s.Sold)
		}
	}
	if f.Max > 0 {
		f.Ratio = math.Round(100*float64(f.Min)/float64(f.Max)) / 100
	}
	f.Min = min(f.Min, f.Max)
	return f
}

// ms is d in milliseconds, to the microsecond.
func ms(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// per is n per second, or 0 if no time has passed.
func per(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return math.Round(float64(n) / d.Seconds())
}
