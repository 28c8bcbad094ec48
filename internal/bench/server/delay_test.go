package server

import (
	"testing"
	"time"
)

// TestDelay checks that a request takes a round trip longer, and a signal from one client to
// another as well, and that requests which are sent together wait together.
func TestDelay(t *testing.T) {
	s, err := StartRedis("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	const roundTrip = 20 * time.Millisecond
	d, err := NewDelay(s.Addr, roundTrip)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	dial := func() *Conn {
		c, err := Dial(d.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	a, b := dial(), dial()
	if _, err := b.Do("SUBSCRIBE", "x"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := a.Send("PUBLISH", "x", "y"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*Conn{"the answer": a, "the signal": b} {
		if _, err := c.Receive(); err != nil || time.Since(began) < roundTrip {
			t.Errorf("%s came after %v (%v)", name, time.Since(began), err)
		}
	}
	began = time.Now()
	const many = 50
	for range many {
		if err := a.Send("PING"); err != nil {
			t.Fatal(err)
		}
	}
	for range many {
		if _, err := a.Receive(); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > many*roundTrip/2 {
		t.Errorf("%d requests at once took %v", many, took)
	}
}
