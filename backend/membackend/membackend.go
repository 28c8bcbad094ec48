// Package membackend keeps locks in this process's memory: mem:// in a URL. It is the embedded
// default that needs nothing installed, the reference for other backends, and the test double:
// inside a testing/synctest bubble an hour's lease takes no time.
//
// It excludes goroutines of one process from each other, and nothing else. Its clock is the
// process's monotonic clock, so neither clock steps nor drift can end a lease early. What it holds
// dies with the process.
package membackend

import (
	"context"
	"iter"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/memstore"
)

func init() { backend.Register("mem", open) }

// Backend is one client of a store in memory.
type Backend struct {
	backend.Base
	store  *memstore.Store
	closed atomic.Bool
	onLast func() // takes a named store out of the registry with its last client
}

var _ backend.Backend = (*Backend)(nil)

// New returns the first client of a new store.
func New() *Backend { return NewWith(Config{}) }

// A Config makes a store behave like one on a server of its own. The zero Config is what New has.
type Config struct {
	// Quarantine is how long the store grants nothing, from now on, as a server does that lost its
	// memory: holds that it cannot know of must run out first. A claim with a longer TTL is an
	// *[backend.InvalidError], because its hold would outlast the quarantine of a store that
	// follows this one.
	Quarantine time.Duration
}

// NewWith is New with a Config.
func NewWith(cfg Config) *Backend {
	return &Backend{store: memstore.New(memstore.Config{Quarantine: cfg.Quarantine})}
}

// Client returns another client of b's store, as a second process would be on a real one. Closing
// either leaves the other.
func (b *Backend) Client() *Backend { return &Backend{store: b.store} }

// Capabilities says what a store in one process can do soundly.
func (b *Backend) Capabilities() backend.Capabilities { return b.store.Capabilities() }

// TryAcquire implements [backend.Backend].
func (b *Backend) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if err := b.store.Validate(c); err != nil {
		return backend.Grant{}, err
	}
	if err := b.ready(ctx); err != nil {
		return backend.Grant{}, err
	}
	return b.store.Acquire(c)
}

// Renew implements [backend.Backend].
func (b *Backend) Renew(ctx context.Context, c backend.Claim) error {
	if err := b.store.Validate(c); err != nil {
		return err
	}
	if err := b.ready(ctx); err != nil {
		return err
	}
	return b.store.Renew(c)
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, c backend.Claim) error {
	if err := c.ValidateRelease(b.Capabilities()); err != nil {
		return err
	}
	if err := b.ready(ctx); err != nil {
		return err
	}
	return b.store.Release(c)
}

// Heartbeat implements [backend.Backend].
func (b *Backend) Heartbeat(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if err := backend.ValidateHeartbeat(claims, b.Capabilities()); err != nil {
		return nil, err
	}
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	return b.store.Heartbeat(claims), nil
}

// Watch implements [backend.Backend]. Releases signal, and grants to who stands in line. A lease
// that runs out does not, see HeldError.RetryAfter.
func (b *Backend) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	if err := backend.ValidateKey(c.Key); err != nil {
		return nil, err
	}
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	return b.store.Watch(ctx, c), nil
}

// Inspect implements [backend.Backend].
func (b *Backend) Inspect(ctx context.Context, key string) (backend.State, error) {
	if err := backend.ValidateKey(key); err != nil {
		return backend.State{}, err
	}
	if err := b.ready(ctx); err != nil {
		return backend.State{}, err
	}
	return b.store.Inspect(key), nil
}

// List implements [backend.Backend].
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	return func(yield func(backend.Listed, error) bool) {
		if err := b.ready(ctx); err != nil {
			yield(backend.Listed{}, err)
			return
		}
		for _, l := range b.store.List(prefix) {
			if !yield(l, nil) {
				return
			}
		}
	}
}

// ForceRelease implements [backend.Backend].
func (b *Backend) ForceRelease(ctx context.Context, key string, token uint64) (backend.Holder, error) {
	return backend.ForceReleaseBy(ctx, b, key, token)
}

// Saved implements [backend.Backend].
func (b *Backend) Saved(ctx context.Context, key string) ([]byte, error) {
	if err := backend.ValidateKey(key); err != nil {
		return nil, err
	}
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	return b.store.Saved(key), nil
}

// Close implements [backend.Backend]. Leases that this client holds run out by themselves.
func (b *Backend) Close() error {
	if b.closed.CompareAndSwap(false, true) && b.onLast != nil {
		b.onLast()
	}
	return nil
}

// Identity implements [backend.Backend]: clients of one store have the same.
func (b *Backend) Identity(ctx context.Context) (string, error) { return b.store.ID(), b.ready(ctx) }

func (b *Backend) ready(ctx context.Context) error {
	if b.closed.Load() {
		return backend.ErrClosed
	}
	return ctx.Err()
}

// named are the stores that were opened by URL, with the number of their clients: mem://a twice is
// one store.
var named struct {
	sync.Mutex
	stores  map[string]*memstore.Store
	clients map[string]int
}

// open serves mem://NAME. All who open one NAME in a process, the empty one included, share a
// store, as they would on a server; it goes with its last client.
func open(_ context.Context, u *url.URL) (backend.Backend, error) {
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Path != "" && u.Path != "/") {
		return nil, &backend.InvalidError{Field: "url", Reason: "mem:// takes a name and nothing else, as in mem://shop"}
	}
	name := u.Host
	named.Lock()
	defer named.Unlock()
	if named.stores[name] == nil {
		if named.stores == nil {
			named.stores, named.clients = map[string]*memstore.Store{}, map[string]int{}
		}
		named.stores[name] = memstore.New(memstore.Config{})
	}
	named.clients[name]++
	return &Backend{store: named.stores[name], onLast: func() { leave(name) }}, nil
}

func leave(name string) {
	named.Lock()
	defer named.Unlock()
	if named.clients[name]--; named.clients[name] == 0 {
		delete(named.stores, name)
		delete(named.clients, name)
	}
}
