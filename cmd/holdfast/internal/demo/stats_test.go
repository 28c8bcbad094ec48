package demo

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestQuantile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		sorted []time.Duration
		q      float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{7}, 0, 7},
		{[]time.Duration{7}, 0.99, 7},
		{[]time.Duration{1, 9}, 0.5, 1},
		{[]time.Duration{1, 9}, 0.51, 9},
		{[]time.Duration{1, 2, 3}, 0.5, 2},
		{hundred, 0, 1},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 0.991, 100},
		{hundred, 1, 100},
	} {
		if got := quantile(c.sorted, c.q); got != c.want {
			t.Errorf("quantile %v of %d: %v, want %v", c.q, len(c.sorted), got, c.want)
		}
	}
	all := []time.Duration{3 * time.Millisecond, 1500 * time.Microsecond, 2 * time.Millisecond}
	if w := waitsOf(all); w != (waits{P50: 2, P99: 3, Max: 3}) || all[0] != 3*time.Millisecond {
		t.Errorf("%+v of %v", w, all)
	}
}

func TestShares(t *testing.T) {
	shares := sharesOf(map[buyer]int{{1, 2}: 4, {2, 1}: 10, {2, 2}: 1}, 2, 2, 0)
	want := []share{{1, 1, 0, false}, {1, 2, 4, false}, {2, 1, 10, false}, {2, 2, 1, false}}
	if !slices.Equal(shares, want) {
		t.Errorf("%+v, want %+v", shares, want)
	}
	if f := fairnessOf(shares); f != (fairness{0, 10, 0}) {
		t.Errorf("%+v", f)
	}
	// Who was killed was not treated unfairly.
	shares = sharesOf(map[buyer]int{{1, 1}: 8, {1, 2}: 6, {2, 1}: 1}, 2, 2, 2)
	if f := fairnessOf(shares); f != (fairness{6, 8, 0.75}) || !shares[3].Killed || shares[0].Killed {
		t.Errorf("%+v of %+v", f, shares)
	}
	if f := fairnessOf(sharesOf(nil, 1, 2, 0)); f != (fairness{0, 0, 0}) {
		t.Errorf("nothing sold: %+v", f)
	}
}

func TestPer(t *testing.T) {
	if per(10, 0) != 0 || per(10, 2*time.Second) != 5 || per(0, time.Second) != 0 {
		t.Error(per(10, 0), per(10, 2*time.Second), per(0, time.Second))
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[float64]string{
		0: "0s", 0.0124: "12µs", 1.2345: "1.23ms", 36.94: "36.9ms", 227.4: "227ms", 1004: "1s", 1560: "1.56s", 90_000: "1m30s",
	} {
		if got := duration(in).String(); got != want {
			t.Errorf("%v ms: %v, want %v", in, got, want)
		}
	}
}
