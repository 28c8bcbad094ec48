package rueidisbackend

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	store "github.com/holdfast-go/holdfast/internal/redis"
)

const (
	// Rueidis' queue of requests in flight on a connection has 2,048 places,.
	ringScale = 11
	// Half of them for requests in their callers' goroutines, half for all others.
	inFlight   = 1<<ringScale/2 - 8
	bufferSize = 64 << 10 // bytes, each way
	refresh    = 5 * time.Second
	ticks      = 8 // of a request timeout, see conns.tick
)

// conns knows how the client's connections are.
//
// While nothing has happened to them, rueidis returns as soon as a context ends, and a request
// runs in its caller's goroutine. It does not heed contexts when many wait for one dial, when its
// queue is full (of requests whose callers have left), and when it looks for a cluster's nodes. So
// after a dial, a close, or a request that was left behind, requests run in goroutines of their
// own until one that began later has been answered. Answers come in order: then whatever was left
// before is off the queue, and the connection is there.
//
// A request in its caller's goroutine has no timer of its own. It is counted at the tick at which
// it began, and if it is in flight eight ticks later, a whole request timeout, and nothing was
// answered meanwhile, the connections are closed. That ends no other request too early: they share
// one connection, on which answers come in order, so those that were sent later have no answer
// either. A server that answers others is busy, and a request is given nearly twice as long.
type conns struct {
	cluster     bool // has many connections, and is never stable
	dials       atomic.Uint64
	disruptions atomic.Uint64
	stableAt    atomic.Uint64 // the disruptions when the last request that was answered began
	answers     atomic.Uint64 // requests that were answered
	slots       chan struct{} // held by each request that has a time-out of its own

	direct atomic.Int64            // requests in their callers' goroutines
	began  [2 * ticks]atomic.Int64 // of them, those that began at each tick
	tick   atomic.Uint64
	// whose Write was the last to wait for requests; nil before the first
	gather  atomic.Pointer[conn]
	ticking atomic.Bool // timer is set
	moved   uint64      // the tick of the last look that found new answers
	before  uint64      // the answers by then
	timer   *time.Timer
	every   time.Duration // between two ticks

	reopened atomic.Int64 // when the connections were last closed on suspicion, in Unix seconds
	closed   atomic.Bool
	mu       sync.Mutex
	open     map[*conn]struct{}
}

func newConns(timeout time.Duration) *conns {
	c := &conns{
		open: map[*conn]struct{}{}, slots: make(chan struct{}, inFlight),
		every: timeout / ticks,
	}
	c.disruptions.Store(1)
	c.timer = time.AfterFunc(timeout, c.look)
	c.timer.Stop()
	return c
}

// stable reports whether a request may run in its caller's goroutine.
func (c *conns) stable() bool { return !c.cluster && c.stableAt.Load() == c.disruptions.Load() }

func (c *conns) disrupted() { c.disruptions.Add(1) }

// enter counts a request in its caller's goroutine, until leave. ok is false if it may not run
// there, or too many do.
func (c *conns) enter() (tick uint64, ok bool) {
	if !c.stable() {
		return 0, false
	}
	if c.direct.Add(1) > inFlight {
		c.direct.Add(-1)
		return 0, false
	}
	if on := c.gather.Load(); on != nil && on.missing.Add(-1) == 0 {
		on.goOn()
	}
	tick = c.tick.Load()
	c.began[tick%(2*ticks)].Add(1)
	c.tickOn()
	return tick, true
}

func (c *conns) leave(tick uint64) {
	c.began[tick%(2*ticks)].Add(-1)
	c.direct.Add(-1)
}

// look is the timer's function.
func (c *conns) look() {
	now := c.tick.Add(1)
	if answers := c.answers.Load(); answers != c.before {
		c.moved, c.before = now, answers
	}
	age := uint64(2*ticks - 1)
	if now-c.moved >= ticks {
		age = ticks
	}
	for ; age < 2*ticks; age++ {
		if c.began[(now-age)%(2*ticks)].Load() > 0 {
			c.closeAll()
			break
		}
	}
	// Before the look at direct: a goroutine that counts a request does it the other way round.
	c.ticking.Store(false)
	if c.direct.Load() > 0 {
		c.tickOn()
	}
}

func (c *conns) tickOn() {
	if !c.ticking.Load() && c.ticking.CompareAndSwap(false, true) {
		c.timer.Reset(c.every)
	}
}

// answered notes the answer to a request that began at so many disruptions.
func (c *conns) answered(began uint64) {
	c.answers.Add(1)
	if c.stableAt.Load() != began {
		c.stableAt.Store(began)
	}
}

// A conn tells when it is closed, and gathers what it sends. Write is not to be called
// concurrently, which rueidis does not.
type conn struct {
	net.Conn
	of *conns

	gathered bool          // the last Write waited for requests, which are in the next
	missing  atomic.Int64  // how many Write waits for
	enough   chan struct{} // one slot: Write waits no more
}

// Write sends what rueidis has put together. While other requests are in flight it lets goroutines
// go first that can, as they may have more to send: that goes together then, with the next Write.
// Without, each request is a packet, whose system call costs more than all else of it. But it waits
// for no more than a quarter of those in flight, or eight if that is more: if all went together,
// they would be executed and answered together, and this process and the server would be idle by
// turns.
func (c *conn) Write(p []byte) (int, error) {
	n := c.of.direct.Load()
	if c.gathered = n > 1 && !c.gathered; c.gathered {
		select {
		case <-c.enough: // an earlier Write's
		default:
		}
		c.missing.Store(max(n/4, 8))
		c.of.gather.Store(c)
		go func() { // ends at once, with or without Close
			runtime.Gosched() // behind those who can run now
			c.goOn()
		}()
		<-c.enough
	}
	return c.Conn.Write(p)
}

// goOn ends the wait of a Write. Too early is no harm.
func (c *conn) goOn() {
	select {
	case c.enough <- struct{}{}:
	default:
	}
}

// Close closes the connection.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	c.of.disrupted()
	return c.Conn.Close()
}

type dialFunc = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)

// dialer returns the dialer of the client, on the program's own if it has one.
func (c *conns) dialer(timeout time.Duration, theirs dialFunc) dialFunc {
	return func(ctx context.Context, addr string, d *net.Dialer,
		secure *tls.Config,
	) (net.Conn, error) {
		c.disrupted()
		// Others may wait for it too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		made, err := dial(ctx, timeout, theirs, addr, d, secure)
		if err != nil {
			return nil, err
		}
		c.dials.Add(1)
		wrapped := &conn{Conn: made, of: c, enough: make(chan struct{}, 1)}
		c.mu.Lock()
		c.open[wrapped] = struct{}{}
		c.mu.Unlock()
		return wrapped, nil
	}
}

// dial makes a connection, by the program's own dialer if it has one.
func dial(ctx context.Context, timeout time.Duration, theirs dialFunc, addr string, d *net.Dialer,
	secure *tls.Config,
) (net.Conn, error) {
	made, err := net.Conn(nil), error(nil)
	if theirs != nil {
		made, err = theirs(ctx, addr, d, secure)
	} else {
		made, err = store.NewDialer(timeout, secure)(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, &store.ConnectError{Err: err}
	}
	return &asked{Conn: made, written: make(chan struct{})}, nil
}

// An asked connection is read from when something was written to it, and not before. A server at
// its limit of clients says so unasked. Rueidis, where it gives up a connection that it has written
// nothing to, as its caller's ctx ended while it was made, may read that, takes it for a bug of the
// protocol, and panics (v1.0.79).
type asked struct {
	net.Conn
	once    sync.Once
	written chan struct{} // closed by the first Write, or Close
}

func (c *asked) Read(p []byte) (int, error) {
	<-c.written // safeguard: unasked
	return c.Conn.Read(p)
}

func (c *asked) Write(p []byte) (int, error) {
	c.once.Do(func() { close(c.written) })
	return c.Conn.Write(p)
}

// Close closes the connection.
func (c *asked) Close() error {
	c.once.Do(func() { close(c.written) })
	return c.Conn.Close()
}

// reopen closes the connections, at most once a second, when the server answered READONLY or
// nobody for a whole request timeout: its name may belong to another by now, or the connection
// may be dead, which only a new one finds out. A cluster has many servers, and rueidis knows
// itself when one is another's replica.
func (c *conns) reopen() {
	now := time.Now().Unix()
	if last := c.reopened.Load(); !c.cluster && now > last && c.reopened.CompareAndSwap(last, now) {
		c.closeAll()
	}
}

// shut closes what is left of the connections, so that closing the client does not wait for a
// server that does not answer. It reports whether this is the first call.
func (c *conns) shut() bool {
	if c.closed.Swap(true) {
		return false
	}
	c.closeAll()
	return true
}

func (c *conns) closeAll() {
	c.mu.Lock()
	all := make([]*conn, 0, len(c.open))
	for one := range c.open {
		all = append(all, one)
	}
	c.mu.Unlock()
	for _, one := range all {
		_ = one.Close()
	}
}
