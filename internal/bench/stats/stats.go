// Package stats is the arithmetic of the benchmark: what is said of many samples in a few numbers.
package stats

import (
	"math"
	"slices"
)

// Jain is Jain's index of fairness of shares: 1 if all are equal, 1/n if one has everything.
// Nobody, or nothing, is fair.
func Jain(shares []int64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// MaxMin is the largest share over the smallest, where nothing counts as one: +Inf would be no
// number to tabulate.
func MaxMin(shares []int64) float64 {
	if len(shares) == 0 {
		return 1
	}
	return float64(max(slices.Max(shares), 1)) / float64(max(slices.Min(shares), 1))
}

// A Spread is a median and an interval that holds the median of all rounds that might have been
// made, with a probability of [Confidence] at least.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	N      int     `json:"rounds"`
}

// Confidence is that of five rounds that lie between their least and their greatest.
const Confidence = 1 - 2.0/32

// SpreadOf returns the spread of xs; all zero of none. Of five samples or fewer, the interval is
// what they lie between. Of more, as many are left out at either end as the confidence allows:
// each sample is below the true median as often as a coin falls, whatever the distribution.
func SpreadOf(xs []float64) Spread {
	n := len(xs)
	if n == 0 {
		return Spread{}
	}
	s := slices.Sorted(slices.Values(xs))
	out, p := 0, math.Pow(0.5, float64(n)) // p: how likely exactly out of n are below the median
	for sum := p; ; out++ {
		p *= float64(n-out) / float64(out+1)
		if sum += p; 2*sum > 1-Confidence || 2*out+2 >= n {
			break
		}
	}
	return Spread{(s[(n-1)/2] + s[n/2]) / 2, s[out], s[n-1-out], n}
}
