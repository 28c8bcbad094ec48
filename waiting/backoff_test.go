package waiting_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/waiting"
)

// covers: W17, Q1
func TestBackoff(t *testing.T) {
	const initial, limit = 10 * time.Millisecond, 80 * time.Millisecond
	longest := map[int]time.Duration{}
	distinct := map[time.Duration]bool{}
	for range 2000 {
		b := waiting.NewBackoff(initial, limit)
		for i := range 8 {
			d := b.Next()
			if d < time.Millisecond || d > limit {
				t.Fatalf("sleep %d is %v, want 1ms to %v", i, d, limit)
			}
			longest[i] = max(longest[i], d)
			distinct[d] = true
		}
	}
	for i, base := 0, initial; i < 8; i, base = i+1, min(2*base, limit) {
		if most := min(2*base, limit); longest[i] > most || longest[i] < most*9/10 {
			t.Errorf("the longest sleep %d of 2000 was %v, want up to %v", i, longest[i], most)
		}
	}
	if len(distinct) < 10_000 {
		t.Errorf("%d different sleeps of 16000: waiters would meet again", len(distinct))
	}
}

func TestBackoffReset(t *testing.T) {
	b := waiting.NewBackoff(10*time.Millisecond, time.Hour)
	for range 10 {
		b.Next()
	}
	b.Reset()
	if d := b.Next(); d > 20*time.Millisecond {
		t.Errorf("after Reset the sleep is %v, want at most twice the initial one", d)
	}
}

func TestBackoffNeverSpins(t *testing.T) {
	b := waiting.NewBackoff(1, 2) // nanoseconds
	for range 100 {
		if d := b.Next(); d < time.Millisecond {
			t.Fatalf("sleep of %v: a loop would spin", d)
		}
	}
}

// covers: B10, W17
func TestJitter(t *testing.T) {
	for _, d := range []time.Duration{
		0, 1, 4, 5, 7, time.Millisecond, time.Second, time.Hour,
		1 << 61,
	} {
		low, high := d, d
		for range 2000 {
			j := waiting.Jitter(d)
			low, high = min(low, j), max(high, j)
		}
		if low < d-d/5 || high > d+d/5 {
			t.Errorf("Jitter(%v) went from %v to %v, want a fifth either way", d, low, high)
		}
		if d > time.Microsecond && (low > d-d/6 || high < d+d/6) {
			t.Errorf("Jitter(%v) only went from %v to %v", d, low, high)
		}
	}
}
