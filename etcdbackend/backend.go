package etcdbackend

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// DefaultRequestTimeout bounds a request when [Config] does not say otherwise.
const DefaultRequestTimeout = 3 * time.Second

// MinTTL is the shortest lease that etcd can count. A server may round it up to one and a half of its election timeout.
const MinTTL = time.Second

// Config adjusts a [Backend]; the zero value is ready for use.
type Config struct {
	// Prefix starts every key. Clients with different prefixes do not see each other's locks, if neither starts with the
	// other. Default "holdfast/"; empty in the layout [Etcdctl].
	Prefix string

	// Layout of the keys, the same for all who share a lock. Default [Native].
	Layout Layout

	// RequestTimeout bounds each verb, also when ctx has no deadline. Default 3s.
	RequestTimeout time.Duration
}

// A Backend keeps locks in etcd. It is safe for concurrent use, and does not change the client it was given.
type Backend struct {
	backend.Base

	client *clientv3.Client
	owned  bool // opened by us, so closed by us
	cfg    Config
	scheme scheme

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // verbs under way, and goroutines

	limits *limiter
	leases leaser
	prober prober
	hub    waiting.Hub[backend.Wake] // topics: place.line, and place.name for claims in line

	mu       sync.Mutex // guards the rest, all holds, leases and watchers, and tasks.Add against closed
	closed   bool
	id       string   // of this client, in its slots
	slots    []string // free
	made     int
	meta     backend.Meta // of the last claim, and metaText is it in JSON
	metaText string
	holds    map[string]*hold              // by place.name
	waiting  map[string]map[*hold]struct{} // in line, by place.line
	watchers map[string]*watcher           // by place.line

	keepalives atomic.Int64 // requests sent
}

var _ backend.Backend = (*Backend)(nil)

// New returns a backend on a client that the caller keeps and closes, after the backend. It sends nothing. The client may be
// shared with the rest of the program, but not through clientv3/namespace with a prefix that ends a lock's range.
//
// It returns an *[backend.InvalidError] for a bad cfg or no client.
func New(client *clientv3.Client, cfg Config) (*Backend, error) {
	if client == nil {
		return nil, &backend.InvalidError{Field: "client", Reason: "is nil"}
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Backend{
		client: client, cfg: cfg, scheme: scheme{cfg.Prefix, cfg.Layout == Etcdctl}, id: backend.NewOwner() + ".",
		holds: map[string]*hold{}, waiting: map[string]map[*hold]struct{}{}, watchers: map[string]*watcher{},
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.limits = newLimiter()
	b.leases = leaser{b: b, current: map[int64]*lease{}, grants: map[int64]*keepalive{}}
	b.prober = prober{b: b}
	return b, nil
}

func (cfg Config) withDefaults() (Config, error) {
	switch cfg.Layout {
	case "":
		cfg.Layout = Native
	case Native, Etcdctl:
	default:
		return cfg, &backend.InvalidError{Field: "layout", Value: string(cfg.Layout), Reason: "is neither native nor etcdctl"}
	}
	if cfg.Prefix == "" && cfg.Layout == Native {
		cfg.Prefix = defaultPrefix
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = DefaultRequestTimeout
	}
	if cfg.RequestTimeout < time.Millisecond {
		return cfg, &backend.InvalidError{Field: "request_timeout", Value: cfg.RequestTimeout.String(), Reason: "is below 1ms"}
	}
	if len(cfg.Prefix) > backend.MaxKey || strings.HasPrefix(cfg.Prefix, sideRoot) {
		return cfg, &backend.InvalidError{Field: "prefix", Value: cfg.Prefix, Reason: "is too long, or kept by the layout for itself"}
	}
	return cfg, nil
}

// Capabilities are exclusive claims without stored state in the layout [Etcdctl], and otherwise all but MinToken.
func (b *Backend) Capabilities() backend.Capabilities {
	native := !b.scheme.etcdctl
	return backend.Capabilities{
		Shared: native, Permit: native, Reentrant: native, State: native,
		Fencing: true, Queue: true, Watch: true, Inspect: true, MinTTL: MinTTL,
	}
}

// TryAcquire makes one attempt, as [backend.Backend] says: one Raft write if the lock is free and this client has a lease for
// its TTL. A claim that must wait takes a second one, and a third when its turn has come.
func (b *Backend) TryAcquire(ctx context.Context, c backend.Claim) (g backend.Grant, err error) {
	if err := c.Validate(b.Capabilities()); err != nil {
		return g, err
	}
	err = b.call(ctx, c.Key, func(ctx context.Context) error {
		a := &attempt{b: b, c: c, place: b.scheme.at(c.Key), sent: time.Now()}
		a.h = b.touch(a.place, c, a.sent, a.span())
		defer b.done(a.h)
		g, err = a.run(ctx)
		if err != nil {
			b.refused(a.h, err)
		}
		return err
	})
	return g, err
}

// Renew extends the hold by a keepalive that it shares with others, and looks whether it is still there. It writes only if the
// hold was made by another client, or with a shorter TTL, or if there is a state to save.
func (b *Backend) Renew(ctx context.Context, c backend.Claim) error {
	if err := c.Validate(b.Capabilities()); err != nil {
		return err
	}
	c.Load = false
	return b.call(ctx, c.Key, func(ctx context.Context) error { return b.renew(ctx, c, time.Now()) })
}

// Release ends the claim in one Raft write, as [backend.Backend] says.
func (b *Backend) Release(ctx context.Context, c backend.Claim) error {
	if id := c.ID(); id == "" || len(id) > backend.MaxOwner {
		field := "owner"
		if c.Reentrant {
			field = "hold"
		}
		return &backend.InvalidError{Field: field, Reason: "must have 1 to " + strconv.Itoa(backend.MaxOwner) + " bytes"}
	}
	if err := c.ValidateRelease(b.Capabilities()); err != nil {
		return err
	}
	return b.call(ctx, c.Key, func(ctx context.Context) error { return b.release(ctx, c) })
}

// Watch signals when an entry of c.Key is deleted, by anybody or by the end of its lease; for a claim in line, when its turn
// has come. All watches of a lock share one etcd watch.
func (b *Backend) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	if err := backend.ValidateKey(c.Key); err != nil {
		return nil, err
	}
	p := b.scheme.at(c.Key)
	topic := p.line
	if c.Queue {
		topic = p.name(c)
	}
	if !b.begin() {
		return nil, backend.ErrClosed
	}
	defer b.tasks.Done()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return b.watch(ctx, p, topic)
}

// Close ends the watches and what is under way, waits for it, and closes the client if the backend was opened by URL. The
// leases run out.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.limits.close()
	b.tasks.Wait()
	if first && b.owned {
		return b.client.Close()
	}
	return nil
}
