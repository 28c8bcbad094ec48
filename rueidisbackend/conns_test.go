package rueidisbackend

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A request in its caller's goroutine has no timer. When it has had no answer for a request timeout,
// and not before seven eighths of one, its connection is closed.
//
// covers: E2
func TestSilentConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 800 * time.Millisecond
		c := newConns(timeout)
		c.answered(c.disruptions.Load())
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c.open[&conn{ours, c}] = struct{}{}
		closed := func() bool {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.open) == 0
		}
		enter := func() uint64 {
			tick, ok := c.enter()
			if !ok {
				t.Fatal("no request may run in its caller's goroutine")
			}
			return tick
		}
		for range 100 { // answered in time, always with another one in flight
			first := enter()
			time.Sleep(timeout / 2)
			second := enter()
			time.Sleep(timeout / 4)
			c.leave(first)
			c.leave(second)
		}
		if closed() {
			t.Fatal("closed, though all were answered in time")
		}
		time.Sleep(time.Hour) // the timer rests
		began := time.Now()
		silent := enter()
		time.Sleep(timeout * 6 / 8)
		c.leave(enter()) // an answer to a later one does not help
		if closed() {
			t.Fatal("closed too early")
		}
		for !closed() && time.Since(began) < 2*timeout {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took < timeout*7/8 || took > timeout {
			t.Errorf("closed after %v", took)
		}
		c.leave(silent)
		if c.direct.Load() != 0 || c.stable() {
			t.Error("a request is counted still, or the connection counts as good")
		}
	})
}
