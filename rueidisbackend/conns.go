package rueidisbackend

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	store "github.com/holdfast-go/holdfast/internal/redis"
)

const (
	ringScale  = 11                 // rueidis' queue of requests in flight on a connection has 2,048 places,
	inFlight   = 1<<ringScale/2 - 8 // of which we use half: a request that was left keeps its place until it is answered
	bufferSize = 64 << 10           // bytes, each way
	refresh    = 5 * time.Second
	flushDelay = 20 * time.Microsecond // for which one of many waits for others to go with it, see ADR 0017
)

// conns knows how the client's connections are.
//
// While nothing has happened to them, rueidis returns as soon as a context ends, and a request
// runs in its caller's goroutine. It does not heed contexts when many wait for one dial, when its
// queue is full (of requests whose callers have left), and when it looks for a cluster's nodes. So
// after a dial, a close, or a request that was left behind, requests run in goroutines of their
// own until one that began later has been answered. Answers come in order: then whatever was left
// before is off the queue, and the connection is there.
type conns struct {
	cluster     bool // has many connections, and is never stable
	disruptions atomic.Uint64
	stableAt    atomic.Uint64 // the disruptions when the last request that was answered began
	answers     atomic.Uint64 // requests that were answered
	slots       chan struct{} // held by each request in flight

	reopened atomic.Int64 // when the connections were last closed on suspicion, in Unix seconds
	closed   atomic.Bool
	mu       sync.Mutex
	open     map[*conn]struct{}
}

func newConns() *conns {
	c := &conns{open: map[*conn]struct{}{}, slots: make(chan struct{}, inFlight)}
	c.disruptions.Store(1)
	return c
}

// stable reports whether a request may run in its caller's goroutine.
func (c *conns) stable() bool { return !c.cluster && c.stableAt.Load() == c.disruptions.Load() }

func (c *conns) disrupted() { c.disruptions.Add(1) }

// answered notes the answer to a request that began at so many disruptions.
func (c *conns) answered(began uint64) {
	c.answers.Add(1)
	if c.stableAt.Load() != began {
		c.stableAt.Store(began)
	}
}

// A conn tells when it is closed.
type conn struct {
	net.Conn
	of *conns
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
	return func(ctx context.Context, addr string, d *net.Dialer, secure *tls.Config) (net.Conn, error) {
		c.disrupted()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout) // others may wait for it too
		defer cancel()
		var made net.Conn
		var err error
		if theirs != nil {
			made, err = theirs(ctx, addr, d, secure)
		} else {
			made, err = store.NewDialer(timeout, secure)(ctx, "tcp", addr)
		}
		if err != nil {
			return nil, &store.ConnectError{Err: err}
		}
		wrapped := &conn{made, c}
		c.mu.Lock()
		c.open[wrapped] = struct{}{}
		c.mu.Unlock()
		return wrapped, nil
	}
}

// reopen closes the connections, at most once a second, when the server answered READONLY or
// nobody for a whole request timeout: its name may belong to another by now, or the connection
// lead nowhere, which only a new one finds out. A cluster has many servers, and rueidis knows
// itself when one is another's replica.
func (c *conns) reopen() {
	now := time.Now().Unix()
	if last := c.reopened.Load(); !c.cluster && now > last && c.reopened.CompareAndSwap(last, now) {
		c.closeAll()
	}
}

// shut closes what is left of the connections, so that the client need not say goodbye to a server
// that is silent. It reports whether this is the first call.
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
