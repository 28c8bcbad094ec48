package jitter_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/jitter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDrawn(t *testing.T) {
	least, most := time.Second, time.Duration(0)
	for range 10_000 {
		d := jitter.N(time.Second)
		least, most = min(least, d), max(most, d)
	}
	if least < 0 || least > 10*time.Millisecond || most < 990*time.Millisecond ||
		most >= time.Second {
		t.Errorf("of 10000 draws from a second the least is %v, the most %v", least, most)
	}
}

func TestUse(t *testing.T) {
	restore := jitter.Use(func() float64 { return 0.25 })
	if d, f := jitter.N(time.Second), jitter.Float64(); d != time.Second/4 || f != 0.25 {
		t.Errorf("drew %v and %v from a source of quarters", d, f)
	}
	restore()
	if a, b := jitter.Float64(), jitter.Float64(); a == b {
		t.Errorf("drew %v twice", a)
	}
}
