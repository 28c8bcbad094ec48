// Package stats is the arithmetic of the benchmark: what is said of many samples in a few numbers.
package stats

import "slices"

// Jain is Jain's index of fairness of shares: 1 if all are equal, 1/n if one has everything. Nobody, or nothing, is fair.
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

// MaxMin is the largest share over the smallest, where nothing counts as one: +Inf would be no number to tabulate.
func MaxMin(shares []int64) float64 {
	if len(shares) == 0 {
		return 1
	}
	return float64(max(slices.Max(shares), 1)) / float64(max(slices.Min(shares), 1))
}

// Median is the middle of xs, the mean of the two in the middle if there are two, and 0 of none.
func Median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(xs))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// A Spread is a median and what it lies between.
type Spread struct {
	Median, Min, Max float64
	N                int
}

// SpreadOf returns the spread of xs; all zero of none.
func SpreadOf(xs []float64) Spread {
	if len(xs) == 0 {
		return Spread{}
	}
	return Spread{Median(xs), slices.Min(xs), slices.Max(xs), len(xs)}
}
