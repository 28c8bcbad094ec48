//go:build linux

package chaos

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A clock is that of a server that has testdata/clock.c in front of the kernel's.
type clock struct {
	file   *os.File
	writes int64

	offset time.Duration // of the time of day
	gained time.Duration // of both clocks, until anchor
	anchor time.Duration // of the clock of internal/history
	rate   float64       // by which both run faster since
}

// shim is the library, made once.
var shim struct {
	sync.Once
	dir string
	err error
	out []byte
}

// newClock returns a clock that is right, and the option that gives it to a server.
func newClock(t *testing.T) (*clock, testserver.Option) {
	t.Helper()
	shim.Do(func() {
		//nolint:usetesting // for all tests
		if shim.dir, shim.err = os.MkdirTemp("", "holdfast-clock-"); shim.err == nil {
			library := filepath.Join(shim.dir, "clock.so")
			shim.out, shim.err = exec.Command("cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC",
				"-o", library, "testdata/clock.c").CombinedOutput()
		}
	})
	if shim.err != nil {
		t.Fatalf("the library for clocks: %v\n%s", shim.err, shim.out)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "clock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	c := &clock{file: file, anchor: history.Now()}
	c.write(t)
	return c, testserver.WithEnv("LD_PRELOAD="+filepath.Join(shim.dir, "clock.so"),
		"HOLDFAST_CLOCK="+file.Name())
}

// step sets the time of day.
func (c *clock) step(t *testing.T, d time.Duration) {
	t.Helper()
	c.offset += d
	c.write(t)
}

// run has the clocks run faster by rate from now on.
func (c *clock) run(t *testing.T, rate float64) {
	t.Helper()
	now := history.Now()
	c.gained += time.Duration(float64(now-c.anchor) * c.rate)
	c.anchor, c.rate = now, rate
	c.write(t)
}

// write writes the numbers between two that are the same, of which a reader reads the second first.
func (c *clock) write(t *testing.T) {
	t.Helper()
	c.writes++
	for i, n := range []int64{
		c.writes, int64(c.offset), int64(c.gained), int64(c.rate * 1e9),
		int64(c.anchor), c.writes,
	} {
		if _, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(n)),
			int64(8*i)); err != nil {
			t.Fatal(err)
		}
	}
}
