package redisbackend

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
)

// DefaultRequestTimeout bounds a request when [Config] does not say otherwise.
const DefaultRequestTimeout = store.DefaultRequestTimeout

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

	// MaxTTL turns on the guard against servers that forget: after a restart, a promotion or a flush a server grants nothing
	// for a little more than MaxTTL, by when every lease that it may have forgotten has run out; so does a server that meets
	// the guard for the first time. Renewals and releases go on. Claims with a longer TTL are refused, and so are clients
	// with another MaxTTL, but for their releases. It costs some 10 µs of the server's time a request, and is not for a
	// cluster. Default: no guard.
	MaxTTL time.Duration

	// ReplicaLag goes with MaxTTL where a replica may be promoted: for how long the old primary may go on granting after it
	// has lost its replicas, which is its min-replicas-max-lag. It adds to the time without grants. Default for
	// Sentinel URLs 10s, else 0.
	ReplicaLag time.Duration

	// Dialect "string" stores locks as redsync, bsm/redislock, node-redlock, redis-py and the Redlock text do, under their
	// names as they are, and excludes those libraries. Such locks are exclusive and have no line; a release by another
	// library wakes nobody, so waiters find out when they ask next (waiting.Config.Fallback). Default: a layout of our own.
	Dialect string

	// Replicas makes TryAcquire and Renew wait, for half of RequestTimeout at most, until so many replicas have the grant
	// (WAIT). Without them the answer is unknown, and the lock is given back. It makes a loss in a failover unlikely, not
	// impossible: another replica may be promoted; see MaxTTL. Not for a cluster. Default 0: it does not wait.
	Replicas int
}

type verbs = store.Verbs // under a name that is not a part of Backend for others

// A Backend keeps locks in Redis; it is a [backend.Backend]. It is safe for concurrent use, and does not change the client
// it was given.
type Backend struct {
	verbs
	store  *store.Store
	client redis.UniversalClient
	owned  bool   // opened by us, so closed by us
	prompt bool   // the client honours the deadline of a context
	reload func() // makes a cluster client look who the primaries are; nil otherwise
	cfg    store.Config
	lanes  *store.Lanes
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
	b := &Backend{client: client, cfg: store.Config(cfg)}
	var err error
	if b.store, err = store.New(&b.cfg); err != nil {
		return nil, err
	}
	b.verbs = b.store.Verbs()
	if err := b.adopt(client); err != nil {
		return nil, err
	}
	b.lanes = store.NewLanes(0, &b.store.Gate, b.perform)
	b.store.Use(transport{b})
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
		b.prompt, b.store.Secrets = o.ContextTimeoutEnabled, []string{o.Password}
		if !b.prompt {
			b.client = c.WithTimeout(b.cfg.RequestTimeout) // same connections, but reads end
		}
	case *redis.ClusterClient:
		if c == nil {
			return refuse("is nil")
		}
		o := c.Options()
		b.prompt, b.store.Secrets = o.ContextTimeoutEnabled, []string{o.Password}
		if err := b.store.OnCluster(); err != nil {
			return err
		}
		b.reload = func() { c.ReloadState(context.Background()) } // returns at once, and not too often does something
		if o.ReadTimeout < 0 || o.ReadTimeout == 0 && !b.prompt {
			return refuse("has no ReadTimeout: a silent server would occupy its connections for ever")
		}
	}
	return nil
}

// Close ends the subscription, waits for requests that are under way (RequestTimeout at most, or the client's ReadTimeout
// if that is longer and the client ignores contexts), and closes the client if the backend was opened by URL.
func (b *Backend) Close() error {
	first := b.store.Close()
	b.lanes.Close()
	if first && b.owned {
		return b.client.Close()
	}
	return nil
}

// transport is go-redis at work for the store. It is apart from Backend so that its methods are not Backend's.
type transport struct{ b *Backend }

// Messages returns a pub/sub connection, which is made when it is first used.
func (t transport) Messages(ctx context.Context) store.Messages {
	return messages{t.b.client.Subscribe(ctx)}
}

// Explain says what an error of go-redis means.
func (t transport) Explain(err error) store.Failure {
	var reply redis.Error
	if errors.As(err, &reply) {
		return store.Failure{Reply: reply.Error()}
	}
	if t.b.reload != nil { // go-redis learns of a failover from a reply only, and a dead primary gives none
		t.b.reload()
	}
	return store.Failure{
		Closed: errors.Is(err, redis.ErrClosed),
		Unsent: store.NotMade(err) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted),
	}
}
