package server

import (
	"context"
	"net"
	"runtime"
	"sync"
	"time"
)

// A Delay is a proxy that adds half of a round trip to each way: a request and its answer, or a
// signal from one client to another, take a round trip longer. It reads at once what is sent, and
// has one queue, as everything waits for the same time.
type Delay struct {
	Addr string

	target string
	half   time.Duration
	listen net.Listener
	queue  chan parcel
	over   chan struct{}

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// A parcel is what was read at once; without data, the end.
type parcel struct {
	due  time.Time
	to   net.Conn
	data []byte
}

// NewDelay returns a proxy in front of target, until Close.
func NewDelay(target string, roundTrip time.Duration) (*Delay, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &Delay{
		Addr: l.Addr().String(), target: target, half: roundTrip / 2, listen: l,
		queue: make(chan parcel, 1<<14), over: make(chan struct{}), conns: map[net.Conn]bool{},
	}
	go d.accept()
	go d.deliver()
	return d, nil
}

// Close ends the proxy and every connection through it.
func (d *Delay) Close() {
	_ = d.listen.Close()
	close(d.over)
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		_ = c.Close()
	}
}

func (d *Delay) accept() {
	for {
		client, err := d.listen.Accept()
		if err != nil {
			return
		}
		to, err := new(net.Dialer).DialContext(context.Background(), "tcp", d.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		d.mu.Lock()
		d.conns[client], d.conns[to] = true, true
		d.mu.Unlock()
		go d.forward(client, to)
		go d.forward(to, client)
	}
}

func (d *Delay) forward(from, to net.Conn) {
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		p := parcel{due: time.Now().Add(d.half), to: to}
		if err == nil {
			p.data = append([]byte{}, buf[:n]...)
		}
		select {
		case d.queue <- p:
		case <-d.over:
			return
		}
		if err != nil {
			_ = from.Close()
			return
		}
	}
}

// deliver sleeps on a thread of its own: the runtime's timers wait for whole milliseconds when
// nothing else runs.
func (d *Delay) deliver() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // a thread that ended would take what it started with it
	exactly()
	for {
		select {
		case p := <-d.queue:
			pause(time.Until(p.due))
			if p.data != nil {
				_, _ = p.to.Write(p.data) // a connection that is gone ends at its reader, too
				continue
			}
			_ = p.to.Close()
			d.mu.Lock()
			delete(d.conns, p.to)
			d.mu.Unlock()
		case <-d.over:
			return
		}
	}
}
