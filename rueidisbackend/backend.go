package rueidisbackend

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
)

// DefaultRequestTimeout bounds a request when [Config] does not say otherwise.
const DefaultRequestTimeout = store.DefaultRequestTimeout

// Config adjusts a [Backend]; the zero value is ready for use.
type Config struct {
	// Prefix starts every key and channel. Clients with different prefixes do not see each other's
	// locks, and those with the same one do, also across redisbackend. Default "holdfast:"; it
	// must not contain braces.
	Prefix string

	// Retention is how long the token counter of a key is kept after its last hold, at least
	// TTL/2 and 20ms. Later the server's clock keeps tokens rising, unless it was set back by more
	// than that. Each key that is locked once costs the server some 100 bytes meanwhile. Default
	// 15s.
	Retention time.Duration

	// RequestTimeout bounds each request, also when ctx has no deadline. A server that is slow, but
	// goes on answering this client, is given up to twice as long. Default 3s.
	RequestTimeout time.Duration

	// AllowEviction accepts a server whose maxmemory-policy may drop locks that are held.
	AllowEviction bool

	// HeldAnswers lets an exclusive TryAcquire that does not queue be refused without a request,
	// while this client knows from the server that another claim holds the key: the server tells
	// it of every change. The answer may be as old as that message takes, so a TryLock just after
	// another process has released may still be refused. A free key is always the server's word.
	HeldAnswers bool

	// MaxTTL turns on the guard against servers that forget: after a restart, a promotion or a
	// flush a server grants nothing for a little more than MaxTTL, by when every lease that it may
	// have forgotten has run out; so does a server that meets the guard for the first time.
	// Renewals and releases go on. Claims with a longer TTL are refused, and so are clients with
	// another MaxTTL, but for their releases. It costs some 10 µs of the server's time a request,
	// and is not for a cluster. Default: no guard.
	MaxTTL time.Duration

	// ReplicaLag goes with MaxTTL where a replica may be promoted: for how long the old primary
	// may go on granting after it has lost its replicas, which is its min-replicas-max-lag. It
	// adds to the time without grants. Default for Sentinel URLs 10s, else 0. It needs Redis 7 or
	// Valkey: scripts of Redis 6 write without replicas, whatever its min-replicas-to-write.
	ReplicaLag time.Duration

	// Dialect "string" stores locks as redsync, bsm/redislock, node-redlock, redis-py and the
	// Redlock text do, under their names as they are, and excludes those libraries. Such locks are
	// exclusive and have no queue. Default: a layout of our own.
	Dialect string

	// Replicas makes TryAcquire and Renew wait, for half of RequestTimeout at most, until so many
	// replicas have the grant (WAIT). Without them the answer is unknown, and the lock is given
	// back. It makes a loss in a failover unlikely, not impossible: another replica may be
	// promoted; see MaxTTL. Not for a cluster. Default 0: it does not wait.
	Replicas int
}

// A Backend keeps locks in Redis; it is a [backend.Backend], which says what its methods do. It is
// safe for concurrent use. What is to be said of this one, beside the methods below:
//
//   - TryAcquire makes one attempt in one script or command, unless Config.HeldAnswers spares it.
//     The first one also checks the server, and is refused with [backend.ErrUnsafe] or
//     [backend.ErrDenied] if it is not fit.
//   - Heartbeat keeps places in queues, in one script for up to 64 keys; on a cluster in one for
//     each key. With Config.Dialect the error is [errors.ErrUnsupported].
//   - Renew and Release are one script, or a command, and work when the server is out of memory.
//   - Inspect reads who holds key and who waits for it. The answer was true on the primary when it
//     was given.
//   - Observe has a connection of its own to key's primary, on which the server tells of changes
//     (CLIENT TRACKING in BCAST mode): of every hold that lasts for longer than two round trips.
//   - List finds locks by SCAN, a page at a time on each primary, and reads each. With
//     Config.Dialect the error is [errors.ErrUnsupported].
//   - Saved reads key's stored state from the primary. In the string dialect there is none.
//   - Identity returns the server's replication id, which changes when it restarts or is promoted.
//     A cluster has none: the error is [errors.ErrUnsupported].
//   - Diagnose reads INFO of every primary.
type Backend struct {
	verbs
	store  *store.Store
	client rueidis.Client
	option rueidis.ClientOption // as it was given
	cfg    store.Config
	conns  *conns
	watch  *watches
	held   *heldKeys      // nil unless Config.HeldAnswers
	tasks  sync.WaitGroup // requests whose callers may have left
}

// verbs are those that are the store's as they are, but for answering.
type verbs = backend.Backend

var _ backend.Backend = (*Backend)(nil)

// New connects and returns a backend with a client of its own, made from option: only this lets it
// hear what the server says of keys. The server is checked before the first TryAcquire.
//
// Of option it keeps addresses, credentials, TLS, the database and sizes. It sets what its
// promises need: one connection that all requests share, no retries, its own dialer and time-outs,
// and CLIENT TRACKING in OPTIN mode; an OnInvalidations of option is called too. Without RESP3 and
// CLIENT TRACKING (Redis 6 and later) use package redisbackend.
//
// The error is a *[backend.InvalidError] for a bad cfg or option, and one that is
// [backend.ErrUnavailable] or [backend.ErrDenied] if the server cannot be reached or refuses the
// connection.
func New(option rueidis.ClientOption, cfg Config) (*Backend, error) {
	b := &Backend{option: option, cfg: store.Config{
		Prefix: cfg.Prefix, Retention: cfg.Retention, RequestTimeout: cfg.RequestTimeout,
		AllowEviction: cfg.AllowEviction,
		MaxTTL:        cfg.MaxTTL, ReplicaLag: cfg.ReplicaLag, Dialect: cfg.Dialect,
		Replicas: cfg.Replicas,
	}}
	var err error
	if b.store, err = store.New(&b.cfg, "rueidis"); err != nil {
		return nil, err
	}
	b.verbs = b.store
	if err := usable(option); err != nil {
		return nil, err
	}
	b.conns = newConns(b.cfg.RequestTimeout)
	b.store.Counts(&b.conns.dials)
	b.store.Secrets = []string{option.Password, option.Sentinel.Password}
	b.watch = newWatches(b)
	if cfg.HeldAnswers {
		b.held = &heldKeys{names: map[string]struct{}{}}
		b.verbs = answering{b.store, b}
	}
	b.store.Use(transport{b})
	if b.client, err = rueidis.NewClient(b.settings(option)); err != nil {
		if b.client != nil {
			b.client.Close()
		}
		b.conns.closeAll()
		return nil, b.notOpened(err)
	}
	if b.conns.cluster = b.client.Mode() == rueidis.ClientModeCluster; b.conns.cluster {
		b.conns.slots = make(chan struct{}, store.ClusterInFlight)
		if err := b.store.OnCluster(); err != nil {
			_ = b.Close()
			return nil, err
		}
	} else {
		b.store.OnOneServer()
	}
	return b, nil
}

// usable refuses what would break a promise.
func usable(o rueidis.ClientOption) error {
	refuse := func(why string) error { return &backend.InvalidError{Field: "option", Reason: why} }
	switch {
	case len(o.InitAddress) == 0:
		return refuse("has no InitAddress")
	case o.ReplicaOnly || o.SendToReplicas != nil:
		return refuse("sends to replicas, which may lag behind a grant")
	case o.AlwaysRESP2 || o.DisableCache:
		return refuse("does without RESP3 or CLIENT TRACKING, which this backend is for; use " +
			"package redisbackend")
	case o.DialFn != nil:
		return refuse("has DialFn, which does not heed contexts; use DialCtxFn")
	}
	return nil
}

// settings is option as our promises need it.
func (b *Backend) settings(o rueidis.ClientOption) rueidis.ClientOption {
	timeout := b.cfg.RequestTimeout
	o.DialCtxFn = b.conns.dialer(timeout, o.DialCtxFn)
	o.Dialer.Timeout = timeout
	o.Dialer.KeepAlive = timeout // a connection that was silent for so long is pinged,
	if o.ForceSingleClient || o.Sentinel.MasterSet != "" {
		// Rarely, as a request without an answer ends it too, see conns.reopen.
		o.Dialer.KeepAlive *= 2
	}
	o.ConnWriteTimeout = timeout // and given up if it stays so
	o.DisableRetry = true        // the caller repeats, and knows what it repeats
	o.AlwaysPipelining, o.DisableAutoPipelining = true, false
	o.PipelineMultiplex = -1 // one connection
	o.ConnLifetime = 0
	if o.Sentinel.TopologyRefreshInterval == 0 {
		// A demoted primary lives on, and closes nothing.
		o.Sentinel.TopologyRefreshInterval = refresh
	}
	if o.ClusterOption.ShardsRefreshInterval == 0 {
		// Nor does a primary that hangs. safeguard: rueidis-topology
		o.ClusterOption.ShardsRefreshInterval = max(min(refresh, timeout), time.Second)
	}
	if o.RingScaleEachConn == 0 {
		o.RingScaleEachConn = ringScale
	}
	if o.ReadBufferEachConn == 0 {
		o.ReadBufferEachConn = bufferSize
	}
	if o.WriteBufferEachConn == 0 {
		o.WriteBufferEachConn = bufferSize
	}
	if o.CacheSizeEachConn == 0 {
		o.CacheSizeEachConn = cacheSize
	}
	o.ClientTrackingOptions = []string{"OPTIN"}
	if theirs := o.OnInvalidations; theirs != nil {
		o.OnInvalidations = func(keys []rueidis.RedisMessage) {
			b.invalidated(keys)
			theirs(keys)
		}
	} else {
		o.OnInvalidations = b.invalidated
	}
	return o
}

// notOpened is why there is no client. Nothing of ours was sent, so what is not definite is
// unavailable.
func (b *Backend) notOpened(err error) error {
	err = b.store.Failure(context.Background(), err)
	if backend.AnswerOf(err) == backend.Unknown {
		err = fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return err
}

// Capabilities are all there are; in the string dialect exclusive locks, without a queue.
func (b *Backend) Capabilities() backend.Capabilities {
	caps := b.store.Capabilities()
	caps.Loss = true
	return caps
}

// Watch signals when another holds c.Key than before, or nobody; for a claim that holds, when its
// hold is gone, be it released, deleted or flushed; for a claim in the queue, when the key is
// handed over to it. Claims in the queue share one pub/sub connection, all others the one that
// requests go by; when either is lost, every watcher is signalled, as it may have missed a
// message. Watch returns when the server has confirmed it, when ctx is done, or after
// RequestTimeout.
//
// For a claim in the queue the error is [errors.ErrUnsupported] if the user may not subscribe, or
// may not publish: then nobody would be woken. The end of a lease is not signalled.
func (b *Backend) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	if c.Queue {
		return b.store.Watch(ctx, c)
	}
	if err := backend.ValidateKey(c.Key); err != nil {
		return nil, err
	}
	return b.watch.enter(ctx, c)
}

// Fenced runs script, Lua with its own KEYS and ARGV, in one step with the proof that token is one
// of the present hold of key: as long as the lock names that hold, nobody was granted it since. The
// error is [backend.ErrLost] if it is not, and nothing ran. Every other error of the server says so
// too, but for one that script itself ended with; without an answer it may have run, or may yet.
// key is as the backend has it, see locker.Hold; keys and args must be given as such, as in any
// script. On a cluster keys need the hash tag of LockKey. It blocks for one request, bounded by
// RequestTimeout and ctx. Package locker/fence makes a handle to data of it.
func (b *Backend) Fenced(ctx context.Context, key string, token uint64, script string,
	keys, args []string,
) (any, error) {
	return b.store.Fenced(ctx, key, token, script, keys, args)
}

// LockKey returns the Redis key of the lock key. On a cluster, data that is written with Fenced has
// its hash tag: that of the lock "sku-1" is {sku-1}.
func (b *Backend) LockKey(key string) string { return b.store.LockKey(key) }

// ForceRelease ends a hold whoever holds it, as [backend.Backend] says.
func (b *Backend) ForceRelease(ctx context.Context, key string,
	token uint64,
) (backend.Holder, error) {
	return backend.ForceReleaseBy(ctx, b, key, token)
}

// Close ends the subscription, waits for requests in flight (RequestTimeout at most), and closes
// the client, which takes a second more if the server does not answer.
func (b *Backend) Close() error {
	b.watch.close()
	_ = b.store.Close()
	b.tasks.Wait()
	if b.conns.shut() {
		b.client.Close()
	}
	return nil
}
