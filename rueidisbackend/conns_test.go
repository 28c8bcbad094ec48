package rueidisbackend

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A request in its caller's goroutine has no timer. When nothing was answered for a request
// timeout, and not before seven eighths of one, its connection is closed; while others are
// answered, not before two of them are nearly over.
//
// covers: E2
func TestSilentConnectionIsClosed(t *testing.T) {
	for name, busy := range map[string]bool{"silent": false, "busy": true} {
		t.Run(name, func(t *testing.T) { silentConnection(t, busy) })
	}
}

func silentConnection(t *testing.T, busy bool) {
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
		c.leave(enter())
		if closed() {
			t.Fatal("closed too early")
		}
		for !closed() && time.Since(began) < 3*timeout {
			time.Sleep(time.Millisecond)
			if busy {
				c.answers.Add(1)
			}
		}
		least, most := timeout*7/8, timeout
		if busy {
			least, most = timeout*14/8, 2*timeout
		}
		if took := time.Since(began); took < least || took > most {
			t.Errorf("closed after %v", took)
		}
		c.leave(silent)
		if c.direct.Load() != 0 || c.stable() {
			t.Error("a request is counted still, or the connection counts as good")
		}
	})
}
