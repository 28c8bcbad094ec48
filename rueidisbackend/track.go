package rueidisbackend

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

var errTrackingLost = errors.New("redis: the connection that tells of changes is lost")

// Sizes of a client that is there to be told.
const (
	trackingRing   = 4 // the logarithm of how many requests may be in flight
	trackingBuffer = 4 << 10
	trackingCache  = 1 << 10 // nothing is cached
)

// Track has a client of its own: what its connections ask of the server (BCAST) differs from what
// the others do (OPTIN).
func (t transport) Track(ctx context.Context, key string, changed func()) error {
	made := &tracker{key: key, changed: changed, lost: make(chan struct{})}
	defer made.close()
	defer context.AfterFunc(ctx, made.close)() // rueidis does not heed ctx everywhere
	c, err := rueidis.NewClient(t.trackingSettings(ctx, made))
	if c != nil {
		defer c.Close()
		defer made.close() // first, as the client would say goodbye to a server that may be silent
	}
	if err != nil {
		return err
	}
	for dials := int64(-1); ; {
		// A request about the key keeps a connection to its primary, wherever that has moved. Any
		// reply will do: the key may be of another type.
		bounded, cancel := context.WithTimeout(ctx, t.cfg.RequestTimeout)
		err := c.Do(bounded, c.B().Get().Key(key).Build()).Error()
		cancel()
		if _, isReply := replyCode(err); err != nil && !isReply && !rueidis.IsRedisNil(err) {
			return err
		}
		if now := made.dials.Load(); now != dials {
			dials = now
			changed()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-made.lost:
			return errTrackingLost
		case <-time.After(t.cfg.RequestTimeout):
		}
	}
}

// trackingSettings are those of the backend's client, but for what the server is to tell.
func (t transport) trackingSettings(ctx context.Context, made *tracker) rueidis.ClientOption {
	o := t.settings(t.option)
	o.DialCtxFn = made.dialer(ctx, t.cfg.RequestTimeout, t.option.DialCtxFn)
	o.ClientTrackingOptions = []string{"BCAST", "PREFIX", made.key}
	o.OnInvalidations = made.invalidated
	o.RingScaleEachConn, o.CacheSizeEachConn = trackingRing, trackingCache
	o.ReadBufferEachConn, o.WriteBufferEachConn = trackingBuffer, trackingBuffer
	return o
}

// A tracker is what the connections of one Track have in common.
type tracker struct {
	key     string
	changed func()
	dials   atomic.Int64
	lost    chan struct{} // closed when the server does not tell any more
	once    sync.Once

	mu     sync.Mutex
	closed bool
	open   []net.Conn
}

// invalidated is told by a connection's reader which keys that begin with the tracker's were
// written; nil stands for all of them, when the database was flushed or the connection is lost.
func (t *tracker) invalidated(keys []rueidis.RedisMessage) {
	if keys == nil {
		t.once.Do(func() { close(t.lost) })
	}
	for _, k := range keys {
		if name, err := k.ToString(); err == nil && name == t.key {
			t.changed()
		}
	}
}

func (t *tracker) dialer(tracking context.Context, timeout time.Duration,
	theirs dialFunc,
) dialFunc {
	return func(_ context.Context, addr string, d *net.Dialer,
		secure *tls.Config,
	) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(tracking, timeout)
		defer cancel()
		conn, err := dial(ctx, timeout, theirs, addr, d, secure)
		if err != nil {
			return nil, err
		}
		t.dials.Add(1)
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.open = append(t.open, conn); t.closed {
			_ = conn.Close()
		}
		return conn, nil
	}
}

// close closes the connections, those included that are still to be made.
func (t *tracker) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, conn := range t.open {
		_ = conn.Close()
	}
}
