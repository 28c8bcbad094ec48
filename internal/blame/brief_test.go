package blame

import (
	"testing"
	"time"
)

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 12345 * time.Nanosecond: "12µs", 1234500: "1.23ms",
		36940 * time.Microsecond: "36.9ms", 227400 * time.Microsecond: "227ms",
		1004 * time.Millisecond: "1s", 1560 * time.Millisecond: "1.56s", 90 * time.Second: "1m30s",
		100*time.Hour + 1: "100h0m0s",
	} {
		if got := Brief(d).String(); got != want {
			t.Errorf("%v: %v, want %v", int64(d), got, want)
		}
	}
}
