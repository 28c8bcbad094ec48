package stats

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// sub is how many buckets a power of two has: a percentile is at most 1/sub, about 3 %, above the
// truth.
const (
	subBits = 5
	sub     = 1 << subBits
	buckets = (64 - subBits) * sub
)

// A Hist counts durations in buckets of logarithmic size. It may be used concurrently, and costs no
// allocation per sample.
type Hist struct {
	counts [buckets]atomic.Uint32
	max    atomic.Int64
}

// Add counts d.
func (h *Hist) Add(d time.Duration) {
	n := max(int64(d), 0)
	h.counts[bucket(uint64(n))].Add(1)
	for m := h.max.Load(); n > m && !h.max.CompareAndSwap(m, n); m = h.max.Load() {
	}
}

// bucket is exact below 2*sub, then sub buckets per power of two.
func bucket(n uint64) int {
	if n < sub {
		return int(n)
	}
	shift := bits.Len64(n) - subBits - 1
	return (shift+1)*sub + int(n>>shift) - sub
}

// top is the largest value of a bucket.
func top(i int) int64 {
	if i < sub {
		return int64(i)
	}
	shift := i/sub - 1
	return int64((uint64(i%sub)+sub+1)<<shift) - 1
}

// Quantile is the duration that the share q of all samples does not exceed; 0 of no samples.
func (h *Hist) Quantile(q float64) time.Duration {
	total := h.Count()
	if total == 0 {
		return 0
	}
	rank := max(uint64(q*float64(total)+0.999999), 1)
	var seen uint64
	for i := range h.counts {
		if seen += uint64(h.counts[i].Load()); seen >= rank {
			return min(time.Duration(top(i)), h.Max())
		}
	}
	return h.Max()
}

// Max is the longest sample, exactly.
func (h *Hist) Max() time.Duration { return time.Duration(h.max.Load()) }

// Count is how many samples there are.
func (h *Hist) Count() (n uint64) {
	for i := range h.counts {
		n += uint64(h.counts[i].Load())
	}
	return n
}

// A Snapshot is a Hist that can be sent to another process: the buckets that are not empty.
type Snapshot struct {
	Counts map[int]uint32
	Max    int64
}

// Snapshot returns what h has counted.
func (h *Hist) Snapshot() Snapshot {
	s := Snapshot{Counts: map[int]uint32{}, Max: h.max.Load()}
	for i := range h.counts {
		if n := h.counts[i].Load(); n > 0 {
			s.Counts[i] = n
		}
	}
	return s
}

// Merge adds what another process has counted.
func (h *Hist) Merge(s Snapshot) {
	for i, n := range s.Counts {
		if i >= 0 && i < buckets {
			h.counts[i].Add(n)
		}
	}
	h.max.Store(max(h.max.Load(), s.Max))
}
