package demo

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// showProgress writes a line while a sale goes on: on a terminal again and again in its place,
// elsewhere once per second. The function it returns ends that and returns the last count.
func showProgress(w *os.File, t *tally, stock int) (stop func() count) {
	interval, before, after := time.Second, "", "\n"
	if terminal(w) {
		interval, before, after = 100*time.Millisecond, "\r", "\x1b[K"
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprint(w, before, t.now().line(stock), after)
			case <-done:
				return
			}
		}
	})
	return func() count {
		last := t.now()
		close(done)
		wg.Wait()
		if before != "" {
			fmt.Fprint(w, before, after) // leaves the line to the report
		}
		return last
	}
}

func (c count) line(stock int) string {
	line := fmt.Sprintf("sold %d of %d, %.0f acquisitions/s, %d lost", c.sold, stock, per(c.turns, c.elapsed), c.lost)
	if c.waitsForKilled {
		line += ", waiting for the lease of the killed process to end"
	}
	return line
}

// terminal reports whether f is a terminal, or at least a device: nobody minds what is written to
// the null device.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
