package main

import (
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

// covers: D4
func TestKernelClock(t *testing.T) {
	const ppm = 1 << 16
	for _, c := range []struct {
		tick, freq int64
		level      backend.Level
		text       string
	}{
		{10000, 0, backend.OK, "the kernel leaves it alone"},
		{10000, 31 * ppm, backend.OK, "the kernel makes it 0.0031% faster"},
		{9999, -500 * ppm, backend.OK, "the kernel makes it 0.06% slower"},
		{10099, 0, backend.OK, "0.99% faster"},
		{9901, 0, backend.OK, "0.99% slower"},
		{9901, -200 * ppm, backend.Fail, "1% slower: holders here believe for too long"},
		{9167, 0, backend.Fail, "8.3% slower: holders here believe for too long"},
		{10833, 0, backend.Warn, "8.3% faster: holders here stop too early"},
	} {
		for _, synchronised := range []bool{true, false} {
			f := kernelClock(c.tick, c.freq, synchronised)
			if f.Level != c.level || !strings.Contains(f.Text, c.text) ||
				(f.Change == "") != (c.level == backend.OK) {
				t.Errorf("kernelClock(%d, %d) = %+v, want %s %q", c.tick, c.freq, f, c.level,
					c.text)
			}
			if strings.Contains(f.Text, "not synchronised") == synchronised {
				t.Errorf("synchronised %v: %q", synchronised, f.Text)
			}
		}
	}
	if f, err := machineClock(); (err == nil) != (runtime.GOOS == "linux") ||
		err == nil && f.Text == "" {
		t.Errorf("machineClock = %+v, %v", f, err)
	}
}
