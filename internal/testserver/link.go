package testserver

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// A link is one client's connection with the server's side of it. Three goroutines serve it: one
// reads requests, so that delayed ones overlap and a client that hangs up is noticed while its
// request is held; one decides and forwards; one, once the server is dialed, brings back what it
// sends.
type link struct {
	proxy    *Proxy
	client   *net.TCPConn
	requests chan inbound  // read, not yet decided; closed when the client hangs up
	resp     bool          // the stream is RESP; set by read before the first request is passed on
	done     chan struct{} // closed by cut
	cutOnce  sync.Once

	mu     sync.Mutex
	server *net.TCPConn // nil until the first request is forwarded
	fates  fates        // of requests forwarded and not yet answered
	dead   bool         // half-open: bytes were lost, so nothing passes any more
}

// inbound is a request as it came in.
type inbound struct {
	bytes []byte
	at    time.Time
}

// inFlight bounds the requests that are read ahead on one connection. Beyond it the client feels
// back pressure.
const inFlight = 1024

func newLink(p *Proxy, client *net.TCPConn) *link {
	return &link{
		proxy: p, client: client, requests: make(chan inbound, inFlight),
		done: make(chan struct{}),
	}
}

func (l *link) start() {
	l.proxy.tasks.Go(l.read)
	l.proxy.tasks.Go(l.forward)
	// Forgets the link when it is cut, by whomever, without the locks that they hold.
	l.proxy.tasks.Go(func() {
		<-l.done
		l.proxy.remove(l)
	})
}

// cut closes both sides. It may be called more than once, and with any lock held but the link's.
func (l *link) cut() {
	l.cutOnce.Do(func() {
		close(l.done)
		_ = l.client.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.server != nil {
			_ = l.server.Close()
		}
	})
}

// cutByFault is cut, counted. The client that sees the end finds it counted.
func (l *link) cutByFault(change func(*Counts)) {
	l.proxy.count(func(c *Counts) { c.Cut++; change(c) })
	l.cut()
}

// read takes requests from the client until it hangs up. What it has read is still delivered.
func (l *link) read() {
	defer close(l.requests)
	br := bufio.NewReader(l.client)
	first, err := br.Peek(1)
	if err != nil {
		return
	}
	// No other protocol that we know begins so: TLS with 0x16, HTTP/2 with P.
	l.resp = first[0] == '*'
	for {
		bytes, err := l.next(br)
		if err != nil {
			return
		}
		l.proxy.count(func(c *Counts) { c.Requests++ })
		select {
		case l.requests <- inbound{bytes, time.Now()}:
		case <-l.done:
			return
		}
	}
}

// forward brings requests to the server, in order. When the client has hung up and all is
// delivered, it hangs up, too.
func (l *link) forward() {
	for r := range l.requests {
		if !l.decide(r) {
			l.cut()
			return
		}
	}
	l.mu.Lock()
	server, dead := l.server, l.dead
	l.mu.Unlock()
	if server == nil || dead {
		l.cut()
		return
	}
	// Not closed: a server that still has a request to read must not find a reset there. It hangs
	// up, then bring cuts.
	if l.gate(0) { // the end comes after what is held
		_ = server.CloseWrite()
	}
}

// decide does to a request what is set for it. It blocks while the request is held or delayed, and
// returns false when the link is to be cut.
func (l *link) decide(r inbound) bool {
	for !l.isDead() {
		fault, over := l.proxy.choose(r.bytes)
		switch fault.Mode {
		case Hold:
			l.proxy.count(func(c *Counts) { c.Held++ })
			if !l.wait(over) {
				return false
			}
			continue // what is set now decides anew
		case HalfOpen:
			l.die()
			continue
		case CutBeforeRequest:
			l.cutByFault(func(*Counts) {})
			return false
		case Delay:
			l.proxy.count(func(c *Counts) { c.Delayed++ })
			return l.sleep(r.at.Add(fault.Delay)) && l.send(r, fate{})
		}
		return l.send(r, fate{mode: fault.Mode, due: r.at.Add(fault.Delay), over: over})
	}
	l.proxy.count(func(c *Counts) { c.Swallowed++ })
	return true
}

// send writes a request to the server and notes what is to become of its reply.
func (l *link) send(r inbound, f fate) bool {
	server := l.dial()
	if server == nil {
		return false
	}
	f.subscription = l.resp && subscribes(r.bytes)
	l.mu.Lock()
	l.fates.add(f, l.resp)
	l.mu.Unlock()
	l.proxy.count(func(c *Counts) { c.Forwarded++ })
	_, err := server.Write(r.bytes)
	return err == nil
}

// dial returns the connection to the server, made for the first request. It returns nil if there is
// none to be had.
func (l *link) dial() *net.TCPConn {
	l.mu.Lock()
	server := l.server
	l.mu.Unlock()
	if server != nil {
		return server
	}
	conn, err := net.DialTimeout("tcp", l.proxy.target, commandLimit)
	if err != nil {
		return nil
	}
	server = conn.(*net.TCPConn)
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done: // cut in the meantime, and it did not see this connection
		_ = server.Close()
		return nil
	default:
	}
	l.server = server
	l.proxy.tasks.Go(func() { l.bring(server) })
	return server
}

// bring takes what the server sends to the client, until the server hangs up.
func (l *link) bring(server net.Conn) {
	defer l.cut()
	br := bufio.NewReader(server)
	for {
		bytes, err := l.next(br)
		if err != nil {
			l.gate(0) // a server that dies is not seen to die through a held or half-open line
			return
		}
		if l.resp && isMessage(bytes) && l.proxy.loses() {
			continue
		}
		l.mu.Lock()
		f := l.fates.of(bytes, l.resp)
		l.mu.Unlock()
		if !l.resp || bytes[0] != '>' {
			l.proxy.count(func(c *Counts) { c.Replies++ })
		}
		if !l.settle(f) || !l.gate(1) {
			return
		}
		// A client that hung up is no reason to stop: the server may still have requests of it to
		// answer.
		_, _ = l.client.Write(bytes)
	}
}

// settle does to a reply what was decided for its request. It returns false when the link is to be
// cut.
func (l *link) settle(f fate) bool {
	switch f.mode {
	case HoldReply:
		l.proxy.count(func(c *Counts) { c.Held++ })
		return l.wait(f.over)
	case DelayReply:
		l.proxy.count(func(c *Counts) { c.Delayed++ })
		return l.sleep(f.due)
	case ExecuteThenCut:
		l.cutByFault(func(c *Counts) { c.Dropped++ })
		return false
	}
	return true
}

// gate blocks while everything is held, and for good when the line is half-open. It returns false
// when the link was cut meanwhile. It adds held to what was held, once, if it blocks for that.
func (l *link) gate(held int) bool {
	for ; ; held = 0 {
		mode, over := l.proxy.whole()
		switch {
		case mode == HalfOpen, l.isDead():
			l.die()
			<-l.done
			return false
		case mode != Hold:
			return true
		}
		l.proxy.count(func(c *Counts) { c.Held += held })
		if !l.wait(over) {
			return false
		}
	}
}

func (l *link) die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

func (l *link) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// wait returns true when over is closed, false when the link is cut.
func (l *link) wait(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	case <-l.done:
		return false
	}
}

// sleep returns true at the time due, false when the link is cut.
func (l *link) sleep(due time.Time) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}
