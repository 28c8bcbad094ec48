package demo

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWaits(t *testing.T) {
	ranked := func(n int) (all []time.Duration) {
		for i := range n {
			all = append(all, time.Duration(n-i)*time.Millisecond)
		}
		return all
	}
	for n, want := range map[int]waits{
		0: {}, 1: {1, 1, 1}, 2: {1, 2, 2}, 100: {50, 99, 100},
		101: {51, 100, 101},
	} {
		if w := waitsOf(ranked(n)); w != want {
			t.Errorf("waits of %d: %+v, want %+v", n, w, want)
		}
	}
	all := []time.Duration{3 * time.Millisecond, 1500 * time.Microsecond, 2 * time.Millisecond}
	if w := waitsOf(all); w != (waits{P50: 2, P99: 3, Max: 3}) || all[0] != 3*time.Millisecond {
		t.Errorf("%+v of %v", w, all)
	}
}

func TestResultErr(t *testing.T) {
	rising := &tokens{1, 9, true}
	for _, c := range []struct {
		name string
		r    result
		want string // empty for nil
	}{
		{"fine", result{Ended: "sold out", Lock: true, Tokens: rising}, ""},
		{"no lock", result{Ended: "sold out", Oversell: 7}, ""},
		{"time is up", result{Ended: "time is up", Lock: true, Tokens: rising}, ""},
		{
			"oversell",
			result{Lock: true, Oversell: 7, Tokens: rising},
			"7 sold too many, although under a lock",
		},
		{
			"oversell in an interrupted sale",
			result{Ended: "interrupted", Lock: true, Oversell: 7},
			"7 sold too many, although under a lock\ninterrupted",
		},
		{"tokens", result{Lock: true, Tokens: &tokens{}}, "two holds had the same fencing token"},
		{"store", result{Ended: "failed", Lock: true, failed: errors.New("gone")}, "gone"},
		{
			"nobody killed",
			result{Lock: true, wantKill: true},
			"nobody was killed: the process that was to be never had the lock; give more --stock",
		},
		{
			"never free",
			result{Lock: true, wantKill: true, Kill: &kill{Process: 2}},
			"after process 2 was killed, nobody had the lock any more",
		},
		{"killed", result{Lock: true, wantKill: true, Kill: &kill{Process: 2, NextToken: 4}}, ""},
	} {
		got := ""
		if err := c.r.err(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if r := (&result{Ended: "interrupted"}); !errors.Is(r.err(), ErrInterrupted) {
		t.Error(r.err())
	}
}
