package testserver

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Counts is what a proxy has seen and done so far.
type Counts struct {
	Conns     int // connections accepted
	Open      int // connections open now
	Requests  int // requests read from clients, whatever became of them
	Replies   int // replies read from the server, likewise
	Forwarded int // requests written to the server
	Held      int // requests and replies that were held, released ones included
	Delayed   int // requests and replies that were delayed
	Cut       int // connections that a fault cut; CutAll's are not counted
	Dropped   int // replies dropped by ExecuteThenCut
	Swallowed int // requests swallowed on half-open connections
	Lost      int // messages dropped by LoseMessages
}

// A Proxy is a TCP proxy in front of one server, which forwards until it is told to misbehave. Its
// methods may be called concurrently; those that fail the test must be called from the test's
// goroutine. It ends with the test, and leaves no goroutine behind.
type Proxy struct {
	tb     testing.TB
	target string
	addr   string
	limit  time.Duration  // of Await
	tasks  sync.WaitGroup // every goroutine of the proxy

	mu       sync.Mutex // guards the rest
	listener net.Listener
	links    map[*link]struct{}
	regime   *regime
	counts   Counts
	counted  chan struct{} // closed and replaced whenever counts changes
	closed   bool
}

// NewProxy returns a proxy that listens on 127.0.0.1 and forwards to target ("host:port"). The
// target is dialed when a connection brings its first request; it need not run before.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{
		tb: t, target: target, limit: commandLimit, links: map[*link]struct{}{},
		regime: newRegime(nil), counted: make(chan struct{}),
	}
	var err error
	for range blockSize {
		p.addr = loopback(nextPort())
		if err = p.listenLocked(); err == nil {
			t.Cleanup(p.close)
			return p
		}
	}
	t.Fatalf("testserver: proxy: %v", err)
	return nil
}

// Addr is where clients connect. It stays the same, also over Refuse.
func (p *Proxy) Addr() string { return p.addr }

// Set replaces all faults that were set before, and releases what they held. For each request the
// first fault that applies decides; a request that none applies to passes. Without faults all pass.
func (p *Proxy) Set(faults ...Fault) {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.regime.over)
	p.regime = newRegime(faults)
	refuse := p.regime.has(Refuse)
	switch {
	case p.closed:
	case refuse && p.listener != nil:
		_ = unlisten(p.listener)
		p.listener = nil
	case !refuse && p.listener == nil:
		if err := p.listenLocked(); err != nil {
			p.tb.Errorf("testserver: proxy: listen again: %v", err)
		}
	}
}

// Pass ends all faults; it is Set without any.
func (p *Proxy) Pass() {
	p.tb.Helper()
	p.Set()
}

// CutAll closes all present connections, with what is held on them. It returns when they are
// closed.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Counts returns what was seen so far.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Await blocks until the counts are as wanted, and fails the test if they are not after ten
// seconds. It is how a test waits until a request is held, or a reply was dropped.
func (p *Proxy) Await(wanted func(Counts) bool) {
	p.tb.Helper()
	timer := time.NewTimer(p.limit)
	defer timer.Stop()
	for {
		p.mu.Lock()
		counts, counted := p.counts, p.counted
		p.mu.Unlock()
		if wanted(counts) {
			return
		}
		select {
		case <-counted:
		case <-timer.C:
			p.tb.Fatalf("testserver: proxy: still waiting after %v, with %+v", p.limit, counts)
		}
	}
}

// count changes the counts.
func (p *Proxy) count(change func(*Counts)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countLocked(change)
}

func (p *Proxy) countLocked(change func(*Counts)) {
	change(&p.counts)
	close(p.counted)
	p.counted = make(chan struct{})
}

// choose returns what to do with a request, and a channel that is closed when that is no longer
// what is set.
func (p *Proxy) choose(request []byte) (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.regime.choose(request), p.regime.over
}

// whole returns Hold or HalfOpen if that is set for all connections, and a channel as choose does.
func (p *Proxy) whole() (Mode, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.regime.whole(), p.regime.over
}

// loses reports whether messages are dropped, and counts this one if so.
func (p *Proxy) loses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost := p.regime.has(LoseMessages)
	if lost {
		p.countLocked(func(c *Counts) { c.Lost++ })
	}
	return lost
}

// listenLocked starts the listener and its goroutine, which ends when the listener is closed.
func (p *Proxy) listenLocked() error {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.listener = l
	p.tasks.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.add(conn.(*net.TCPConn))
		}
	})
	return nil
}

func (p *Proxy) add(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = client.Close()
		return
	}
	l := newLink(p, client)
	p.links[l] = struct{}{}
	p.countLocked(func(c *Counts) { c.Conns++; c.Open++ })
	l.start()
}

// remove forgets a link that was cut.
func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	p.countLocked(func(c *Counts) { c.Open-- })
}

// close cuts everything and waits for the proxy's goroutines.
func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		_ = unlisten(p.listener)
	}
	for l := range p.links {
		l.cut()
	}
	p.mu.Unlock()
	p.tasks.Wait()
}
