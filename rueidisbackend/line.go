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
	ringScale = 11       // 2,048 requests under way on a connection; one more waits for a place
	buffer    = 64 << 10 // bytes, each way
	refresh   = 5 * time.Second
	atOwnPace = 2 // requests that go by themselves
)

// A line knows how the client's connections are. While nothing has happened to them, rueidis returns as soon as a context
// ends, and a request can run in its caller's goroutine. It does not heed contexts when many wait for one dial, when the ring
// of a connection is full (of requests whose callers have left, or of too many), and when it looks for a cluster's nodes.
type line struct {
	cluster bool

	events atomic.Uint64 // what happened: a dial, a close, a request that was left behind
	calm   atomic.Uint64 // the events before which a request began that was answered since
	flying atomic.Int64  // requests in their callers' goroutines
	places chan struct{} // for those that are neither there nor in lanes

	reopened atomic.Int64 // when doubted closed the connections, in Unix seconds

	closed atomic.Bool
	mu     sync.Mutex
	conns  map[*conn]struct{}
}

func newLine() *line {
	l := &line{conns: map[*conn]struct{}{}, places: make(chan struct{}, 1<<(ringScale-3))}
	l.events.Store(1)
	return l
}

// enter reports whether a request may run in its caller's goroutine, and then has to leave.
func (l *line) enter() bool {
	if l.cluster || l.calm.Load() != l.events.Load() {
		return false
	}
	if l.flying.Add(1) > atOwnPace {
		l.flying.Add(-1)
		return false
	}
	return true
}

func (l *line) leave() { l.flying.Add(-1) }

// happened notes an event.
func (l *line) happened() { l.events.Add(1) }

// began returns what answered wants to know.
func (l *line) began() uint64 { return l.events.Load() }

// answered notes that a request has come through which began then: answers come in order, so whatever was left behind before
// is off the ring, and the connection is there.
func (l *line) answered(began uint64) {
	if l.calm.Load() != began {
		l.calm.Store(began)
	}
}

// A conn tells its line when it is closed.
type conn struct {
	net.Conn
	l *line
}

// Close closes the connection.
func (c *conn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	c.l.happened()
	return c.Conn.Close()
}

type dialFunc = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)

// dialer returns the dialer of the client, on the program's own if it has one.
func (l *line) dialer(timeout time.Duration, theirs dialFunc) dialFunc {
	return func(ctx context.Context, addr string, d *net.Dialer, secure *tls.Config) (net.Conn, error) {
		l.happened()
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
		c := &conn{made, l}
		l.mu.Lock()
		l.conns[c] = struct{}{}
		l.mu.Unlock()
		return c, nil
	}
}

// doubted closes the connections, at most once a second, when the server answered READONLY or not at all: its name may belong
// to another by now, or the connection lead nowhere, which only a new one finds out. A cluster has many servers, and rueidis
// knows itself when one is another's replica.
func (l *line) doubted() {
	now := time.Now().Unix()
	if last := l.reopened.Load(); !l.cluster && now > last && l.reopened.CompareAndSwap(last, now) {
		l.closeAll()
	}
}

// shut closes what is left of the connections, so that the client need not say goodbye to a server that is silent. It
// reports whether this is the first call.
func (l *line) shut() bool {
	if l.closed.Swap(true) {
		return false
	}
	l.closeAll()
	return true
}

func (l *line) closeAll() {
	l.mu.Lock()
	conns := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}
