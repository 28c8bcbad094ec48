package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestJain(t *testing.T) {
	for _, tt := range []struct {
		shares []int64
		want   float64
	}{
		{nil, 1},
		{[]int64{0, 0}, 1},
		{[]int64{7}, 1},
		{[]int64{5, 5, 5, 5}, 1},
		{[]int64{9, 0, 0, 0}, 0.25},
		{[]int64{1, 3}, 0.8},
	} {
		if got := Jain(tt.shares); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("Jain(%v) = %v, want %v", tt.shares, got, tt.want)
		}
	}
}

func TestMaxMin(t *testing.T) {
	for _, tt := range []struct {
		shares []int64
		want   float64
	}{{nil, 1}, {[]int64{4, 2}, 2}, {[]int64{4, 0}, 4}, {[]int64{0, 0}, 1}} {
		if got := MaxMin(tt.shares); got != tt.want {
			t.Errorf("MaxMin(%v) = %v, want %v", tt.shares, got, tt.want)
		}
	}
}

func TestSpread(t *testing.T) {
	ten := []float64{10, 1, 9, 2, 8, 3, 7, 4, 6, 5}
	for _, tt := range []struct {
		xs   []float64
		want Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3, 1}},
		{[]float64{4, 1, 3, 2}, Spread{2.5, 1, 4, 4}},
		{[]float64{9, 1, 5, 2, 7}, Spread{5, 1, 9, 5}},
		{ten, Spread{5.5, 2, 9, 10}}, // 2 to 9 has 97.9 %, 3 to 8 has 89.1 %
	} {
		before := slices.Clone(tt.xs)
		if got := SpreadOf(tt.xs); got != tt.want {
			t.Errorf("SpreadOf(%v) = %v, want %v", tt.xs, got, tt.want)
		}
		if !slices.Equal(before, tt.xs) {
			t.Errorf("SpreadOf changed its argument: %v, was %v", tt.xs, before)
		}
	}
}

// TestSpreadCovers draws rounds of a skewed distribution whose median is known.
func TestSpreadCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{5, 6, 8, 10, 15} {
		const draws = 4000
		within := 0
		for range draws {
			xs := make([]float64, n)
			for i := range xs {
				xs[i] = r.ExpFloat64()
			}
			if s := SpreadOf(xs); s.Low <= math.Ln2 && math.Ln2 <= s.High {
				within++
			}
		}
		if share := float64(within) / draws; share < Confidence-0.015 {
			t.Errorf("the interval of %d rounds holds the median in %.3f, want %.3f", n, share,
				Confidence)
		}
	}
}

// TestBuckets walks the edges of every bucket: each value lies in a bucket whose top is not below
// it, nor 1/sub above.
func TestBuckets(t *testing.T) {
	for shift := range 62 {
		for _, near := range []int64{-1, 0, 1} {
			n := int64(1)<<shift + near
			i := bucket(uint64(n))
			if up := top(i); up < n || float64(up-n) > float64(n)/sub {
				t.Fatalf("%d lies in bucket %d, whose top is %d", n, i, up)
			}
			if i > 0 && top(i-1) >= n {
				t.Fatalf("%d lies in bucket %d, but %d ends at %d", n, i, i-1, top(i-1))
			}
		}
	}
	if i := bucket(math.MaxInt64); i >= buckets {
		t.Fatalf("the longest duration has bucket %d of %d", i, buckets)
	}
}

func TestQuantile(t *testing.T) {
	var h Hist
	if h.Quantile(0.5) != 0 || h.Count() != 0 {
		t.Error("an empty histogram has samples")
	}
	r := rand.New(rand.NewPCG(1, 2))
	samples := make([]time.Duration, 10_000)
	for i := range samples {
		samples[i] = time.Duration(math.Exp(r.Float64()*20) * 100)
		h.Add(samples[i])
	}
	slices.Sort(samples)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 1} {
		exact := samples[max(int(math.Ceil(q*float64(len(samples)))), 1)-1]
		got := h.Quantile(q)
		if got < exact || float64(got-exact) > float64(exact)/sub {
			t.Errorf("quantile %v is %v, want %v or 3 %% more", q, got, exact)
		}
	}
	if h.Max() != samples[len(samples)-1] {
		t.Errorf("max is %v, want %v", h.Max(), samples[len(samples)-1])
	}
	h.Add(-time.Second) // a clock that went back
	if h.Quantile(0) != 0 {
		t.Error("a negative sample does not count as 0")
	}
}

func TestMerge(t *testing.T) {
	var a, b, all Hist
	for i := range 1000 {
		d := time.Duration(i*i) * time.Microsecond
		all.Add(d)
		if i%3 == 0 {
			a.Add(d)
		} else {
			b.Add(d)
		}
	}
	var sum Hist
	sum.Merge(a.Snapshot())
	sum.Merge(b.Snapshot())
	for _, q := range []float64{0.1, 0.5, 0.99, 1} {
		if sum.Quantile(q) != all.Quantile(q) {
			t.Errorf("quantile %v of the parts is %v, of the whole %v", q, sum.Quantile(q),
				all.Quantile(q))
		}
	}
}
