package redisbackend

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redisclaim"
)

// DefaultRequestTimeout bounds a request when [Config] does not say otherwise.
const DefaultRequestTimeout = 3 * time.Second

// Config adjusts a [Backend]; the zero value is ready for use.
type Config struct {
	// Prefix starts every key and channel. Clients with different prefixes do not see each other's locks. Default
	// "holdfast:"; it must not contain braces.
	Prefix string

	// Retention is how long the token counter of a key is kept after its last hold, at least 2·TTL. Later the server's
	// clock keeps tokens rising. Default 1 minute.
	Retention time.Duration

	// RequestTimeout bounds each request, also when ctx has no deadline. Default 3s.
	RequestTimeout time.Duration

	// AllowEviction accepts a server whose maxmemory-policy may drop locks that are held.
	AllowEviction bool
}

// A Backend keeps locks in Redis. It is safe for concurrent use, and does not change the client it was given.
type Backend struct {
	backend.Base

	client  redis.UniversalClient
	owned   bool   // opened by us, so closed by us
	prompt  bool   // the client honours the deadline of a context
	reload  func() // makes a cluster client look who the primaries are; nil otherwise
	secrets []string
	cfg     Config
	layout  redisclaim.Layout
	waiters *subscription

	checked   atomic.Bool // the server was found fit, see check
	noPublish atomic.Bool // the user may not publish: nobody would be woken

	mu     sync.RWMutex // guards closed, and calls.Add against calls.Wait
	closed bool
	calls  sync.WaitGroup // every request under way, also those whose caller has left
}

var _ backend.Backend = (*Backend)(nil)

// New returns a backend on a client that the caller keeps and closes, after the backend. It sends nothing: the server is
// checked before the first TryAcquire. The client may be shared with the rest of the program.
//
// The client's own retries are not used, whatever its settings. Prefer ContextTimeoutEnabled: without it an answer that does
// not come occupies a connection for the client's ReadTimeout, though the caller returns in time.
//
// It returns an *[backend.InvalidError] for a bad cfg, for no client, for a client without any read timeout, and for a
// *redis.Ring, which moves keys when a server is down and so hands out a lock twice.
func New(client redis.UniversalClient, cfg Config) (*Backend, error) {
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = DefaultRequestTimeout
	}
	if cfg.RequestTimeout < time.Millisecond {
		return nil, &backend.InvalidError{Field: "request_timeout", Value: cfg.RequestTimeout.String(), Reason: "is below 1ms"}
	}
	layout, err := redisclaim.NewLayout(cfg.Prefix, cfg.Retention, cfg.RequestTimeout)
	if err != nil {
		return nil, err
	}
	b := &Backend{client: client, cfg: cfg, layout: layout.For(backend.NewOwner())}
	if err := b.adopt(client); err != nil {
		return nil, err
	}
	b.waiters = newSubscription(b)
	return b, nil
}

// adopt looks at how the client was set up.
func (b *Backend) adopt(client redis.UniversalClient) error {
	refuse := func(why string) error { return &backend.InvalidError{Field: "client", Reason: why} }
	switch c := client.(type) {
	case nil:
		return refuse("is nil")
	case *redis.Ring:
		return refuse("is a Ring, which moves keys to another server when one is down: two would hold a lock")
	case *redis.Client:
		if c == nil {
			return refuse("is nil")
		}
		o := c.Options()
		b.prompt, b.secrets = o.ContextTimeoutEnabled, []string{o.Password}
		if !b.prompt {
			b.client = c.WithTimeout(b.cfg.RequestTimeout) // same connections, but reads end
		}
	case *redis.ClusterClient:
		if c == nil {
			return refuse("is nil")
		}
		o := c.Options()
		b.prompt, b.secrets = o.ContextTimeoutEnabled, []string{o.Password}
		b.reload = func() { c.ReloadState(context.Background()) } // returns at once, and not too often does something
		if o.ReadTimeout < 0 || o.ReadTimeout == 0 && !b.prompt {
			return refuse("has no ReadTimeout: a silent server would occupy its connections for ever")
		}
	}
	return nil
}

// Capabilities are all but stored state.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Shared: true, Permit: true, Fencing: true, Queue: true, Watch: true, Reentrant: true, Inspect: true, Floor: true,
		MinTTL: redisclaim.MinTTL,
	}
}

// TryAcquire makes one attempt in one script, as [backend.Backend] says. The first one also checks the server, and is
// refused with [backend.ErrUnsafe] or [backend.ErrDenied] if it is not fit.
func (b *Backend) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if err := c.Validate(b.Capabilities()); err != nil {
		return backend.Grant{}, err
	}
	if err := b.check(ctx); err != nil {
		return backend.Grant{}, err
	}
	reply, err := b.run(ctx, redisclaim.Acquire, b.layout.Key(c.Key), b.layout.Acquire(c))
	if err != nil {
		return backend.Grant{}, err
	}
	return redisclaim.DecodeAcquire(reply, c)
}

// Renew extends the hold in one script, as [backend.Backend] says. It works when the server is out of memory.
func (b *Backend) Renew(ctx context.Context, c backend.Claim) error {
	if err := c.Validate(b.Capabilities()); err != nil {
		return err
	}
	reply, err := b.run(ctx, redisclaim.Renew, b.layout.Key(c.Key), b.layout.Renew(c))
	if err != nil {
		return err
	}
	return redisclaim.DecodeRenew(reply)
}

// Release ends the claim in one script, as [backend.Backend] says. It works when the server is out of memory.
func (b *Backend) Release(ctx context.Context, c backend.Claim) error {
	if err := validate(c); err != nil {
		return err
	}
	reply, err := b.run(ctx, redisclaim.Release, b.layout.Key(c.Key), b.layout.Release(c))
	if err != nil {
		return err
	}
	return redisclaim.DecodeRelease(reply)
}

// Inspect reads who holds key. The answer was true on the primary when it was given.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.State, error) {
	if err := backend.ValidateKey(key); err != nil {
		return backend.State{}, err
	}
	reply, err := b.run(ctx, redisclaim.Inspect, b.layout.Key(key), b.layout.Inspect())
	if err != nil {
		return backend.State{}, err
	}
	return redisclaim.DecodeInspect(reply)
}

// Close ends the subscription, waits for requests that are under way (RequestTimeout at most, or the client's ReadTimeout
// if that is longer and the client ignores contexts), and closes the client if the backend was opened by URL.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	b.waiters.close()
	b.calls.Wait()
	if first && b.owned {
		return b.client.Close()
	}
	return nil
}

// validate is what a release must have: its TTL and its mode may be anything, so that nothing that was acquired is stuck.
func validate(c backend.Claim) error {
	if id := c.ID(); id == "" || len(id) > backend.MaxOwner {
		field := "owner"
		if c.Reentrant {
			field = "hold"
		}
		return &backend.InvalidError{Field: field, Reason: "must have 1 to " + strconv.Itoa(backend.MaxOwner) + " bytes"}
	}
	return backend.ValidateKey(c.Key)
}
