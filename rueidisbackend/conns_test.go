package rueidisbackend

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
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
		c.open[&conn{Conn: ours, of: c}] = struct{}{}
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

// A write waits for as many requests as it says, and then, or when nobody else can run, it goes on.
// When the scheduler looks is its own affair, so how many went together is not to be tested; the
// benchmark tells.
func TestWriteWaitsForRequests(t *testing.T) { synctest.Test(t, writeWaits) }

func writeWaits(t *testing.T) {
	c := newConns(time.Minute)
	c.ticking.Store(true) // and so no timer: a write that waits for ever is a deadlock
	c.answered(c.disruptions.Load())
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	on := &conn{Conn: ours, of: c, enough: make(chan struct{}, 1)}
	defer ours.Close()
	write := func() {
		t.Helper()
		if _, err := on.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	enter := func() {
		if _, ok := c.enter(); !ok {
			t.Fatal("enter refuses")
		}
	}
	enter()
	write()
	if c.gather.Load() != nil {
		t.Error("a write waits though no other request is in flight")
	}
	for range 39 {
		enter()
	}
	write() // nobody begins a request: it returns all the same
	if c.gather.Load() != on || on.missing.Load() != 10 {
		t.Errorf("with 40 in flight a write waits for %d; want 10", on.missing.Load())
	}
	on.missing.Store(3)
	write()
	if on.missing.Load() != 3 {
		t.Error("what has come together waits again")
	}
	synctest.Wait() // nobody ends a wait any more
	for len(on.enough) > 0 {
		<-on.enough
	}
	for i, enough := range []int{0, 0, 1, 1} {
		enter()
		if len(on.enough) != enough {
			t.Errorf("after %d of 3 requests enough = %d; want %d", i+1, len(on.enough), enough)
		}
	}
}

// Each connection is counted that is made: it may lead to another server than the one before.
//
// covers: K2
func TestConnectionsAreCounted(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := newConns(time.Second)
	dial := c.dialer(time.Second, nil)
	for n := range uint64(3) {
		conn, err := dial(t.Context(), l.Addr().String(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _ = conn.Close(); c.dials.Load() != n+1 {
			t.Errorf("%d connections are counted, want %d", c.dials.Load(), n+1)
		}
	}
	_ = l.Close()
	if _, _ = dial(t.Context(), l.Addr().String(), nil, nil); c.dials.Load() != 3 {
		t.Errorf("%d connections are counted after one that was not made, want 3", c.dials.Load())
	}
}

// A server at its limit of clients says so before it is asked, and hangs up. Where a connection is
// given up before anything was sent, as the time for it was over when it was made, rueidis would
// panic on that.
//
// covers: E2
func TestServerThatSpeaksFirst(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	spoken, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "-ERR max number of clients reached\r\n")
			_ = c.Close()
			spoken <- struct{}{}
		}
	}()
	theirs := func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
		c, err := net.Dial("tcp", server.Addr().String())
		<-spoken
		return c, err
	}
	for range 60 {
		o := rueidis.ClientOption{
			InitAddress:       []string{server.Addr().String()},
			ForceSingleClient: true,
		}
		o.DialCtxFn = newConns(time.Minute).dialer(time.Minute, theirs)
		o.Dialer.Timeout = 1 // over as soon as there is a connection
		if c, err := rueidis.NewClient(o); err == nil {
			c.Close()
			t.Fatal("connected")
		}
	}
	_ = server.Close()
	<-ended
}
