package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
)

// DefaultRequestTimeout bounds a request when [Config] does not say otherwise.
const DefaultRequestTimeout = store.DefaultRequestTimeout

// Config adjusts a [Backend]; the zero value is ready for use.
type Config struct {
	// Prefix starts every key and channel. Clients with different prefixes do not see each other's
	// locks. Default "holdfast:"; it must not contain braces.
	Prefix string

	// Retention is how long the token counter of a key is kept after its last hold, at least
	// TTL/2 and 20ms. Later the server's clock keeps tokens rising, unless it was set back by more
	// than that. Each key that is locked once costs the server some 100 bytes meanwhile. Default
	// 15s.
	Retention time.Duration

	// RequestTimeout bounds each request, also when ctx has no deadline; if a connection has to be
	// made first, that may take as long again. Default 3s.
	RequestTimeout time.Duration

	// AllowEviction accepts a server whose maxmemory-policy may drop locks that are held.
	AllowEviction bool

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
	// exclusive and have no queue; a release by another library wakes nobody, so waiters find out
	// when they ask next (waiting.Config.Fallback). Default: a layout of our own.
	Dialect string

	// Replicas makes TryAcquire and Renew wait, for half of RequestTimeout at most, until so many
	// replicas have the grant (WAIT). Without them the answer is unknown, and the lock is given
	// back. It makes a loss in a failover unlikely, not impossible: another replica may be
	// promoted; see MaxTTL. Not for a cluster. Default 0: it does not wait.
	Replicas int
}

// A Backend keeps locks in Redis; it is a [backend.Backend], which says what its methods do. It is
// safe for concurrent use, and does not change the client it was given. What is to be said of this
// one:
//
//   - Capabilities are all there are; in the string dialect exclusive locks, without a queue.
//   - TryAcquire makes one attempt in one script or command. The first one also checks the server,
//     and is refused with [backend.ErrUnsafe] or [backend.ErrDenied] if it is not fit.
//   - Heartbeat keeps places in queues, in one script for up to 64 keys; on a cluster in one for
//     each key. With Config.Dialect the error is [errors.ErrUnsupported].
//   - Renew and Release are one script, or a command, and work when the server is out of memory.
//   - Watch signals when c.Key is released, by anybody; for a claim in the queue, when the key is
//     handed over to it. All watches of a backend share one connection, which is restored when it
//     breaks; then every watcher is signalled, as it may have missed a message. Watch returns when
//     the server has confirmed the subscription, when ctx is done, or after RequestTimeout. The
//     error is [errors.ErrUnsupported] if the user may not subscribe, or may not publish: then
//     nobody would be woken.
//   - Inspect reads who holds key and who waits for it. The answer was true on the primary when it
//     was given.
//   - Observe has a connection of its own to key's primary, on which the server tells of changes
//     (CLIENT TRACKING): of every hold that lasts for longer than two round trips. It connects with
//     the settings of the client, and with RESP3. The error is [errors.ErrUnsupported] if the
//     server, or a proxy before it, has no CLIENT TRACKING or no RESP3, if the user may not use it,
//     and if the client is neither a *redis.Client nor a *redis.ClusterClient.
//   - List finds locks by SCAN, a page at a time on each primary, and reads each. With
//     Config.Dialect the error is [errors.ErrUnsupported].
//   - Saved reads key's stored state from the primary. In the string dialect there is none.
//   - Identity returns the server's replication id, which changes when it restarts or is promoted.
//     A cluster has none: the error is [errors.ErrUnsupported].
//   - Diagnose reads INFO of every primary.
type Backend struct {
	verbs
	store  *store.Store
	client redis.UniversalClient
	owned  bool        // opened by us, so closed by us
	closed atomic.Bool // by the first Close
	reload func()      // makes a cluster client look who the primaries are; nil otherwise
	cfg    store.Config
	pipe   *pipeline
}

// verbs are those that are the store's as they are.
type verbs = backend.Backend

var _ backend.Backend = (*Backend)(nil)

// New returns a backend on a client that the caller keeps and closes, after the backend. It sends
// nothing: the server is checked before the first TryAcquire. The client may be shared with the
// rest of the program.
//
// The client's own retries are not used, whatever its settings. Prefer ContextTimeoutEnabled:
// without it an answer that does not come occupies a connection for the client's ReadTimeout,
// though the caller returns in time.
//
// It returns a *[backend.InvalidError] for a bad cfg, for no client, for a client without any
// read timeout, and for a *redis.Ring, which moves keys when a server is down and so hands out a
// lock twice.
func New(client redis.UniversalClient, cfg Config) (*Backend, error) {
	b := &Backend{client: client, cfg: store.Config(cfg)}
	var err error
	if b.store, err = store.New(&b.cfg, "redis"); err != nil {
		return nil, err
	}
	b.verbs = b.store
	if err := b.adopt(client); err != nil {
		return nil, err
	}
	b.store.Use(transport{b})
	return b, nil
}

// adopt looks at how the client was set up.
func (b *Backend) adopt(client redis.UniversalClient) error {
	refuse := func(why string) error { return &backend.InvalidError{Field: "client", Reason: why} }
	b.pipe = &pipeline{
		client: client, timeout: b.cfg.RequestTimeout, most: store.ClusterInFlight,
		alone: true,
	}
	switch c := client.(type) {
	case nil:
		return refuse("is nil")
	case *redis.Ring:
		return refuse("is a Ring, which moves keys to another server when one is down: two " +
			"would hold a lock")
	case *redis.Client:
		if c == nil {
			return refuse("is nil")
		}
		b.store.OnOneServer()
		o := c.Options()
		b.store.Secrets = []string{o.Password}
		if !o.ContextTimeoutEnabled {
			b.client = c.WithTimeout(b.cfg.RequestTimeout) // same connections, but reads end
		}
		b.pipe = &pipeline{
			client: b.client, timeout: b.cfg.RequestTimeout, most: o.PoolSize,
			inline: bounded(o, b.cfg.RequestTimeout),
		}
	case *redis.ClusterClient:
		if c == nil {
			return refuse("is nil")
		}
		o := c.Options()
		b.store.Secrets = []string{o.Password}
		if err := b.store.OnCluster(); err != nil {
			return err
		}
		// ReloadState returns at once, and does something only every so often.
		b.reload = func() { c.ReloadState(context.Background()) }
		// A primary that hangs may be replaced long before a request to it is over.
		b.pipe.silent = b.reload
		if o.ReadTimeout < 0 || o.ReadTimeout == 0 && !o.ContextTimeoutEnabled {
			return refuse("has no ReadTimeout: a silent server would occupy its connections " +
				"for ever")
		}
	}
	return nil
}

// bounded reports whether the client itself ends each step of a request within timeout.
func bounded(o *redis.Options, timeout time.Duration) bool {
	limits := []time.Duration{o.PoolTimeout, o.DialTimeout, o.ReadTimeout, o.WriteTimeout}
	for _, limit := range limits {
		if limit <= 0 || limit > timeout { // safeguard: client-bounded
			return false
		}
	}
	return true
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

// Close ends the subscription, waits for requests in flight (RequestTimeout at most, or
// the client's ReadTimeout if that is longer and the client ignores contexts), and closes the
// client if the backend was opened by URL.
func (b *Backend) Close() error {
	_ = b.store.Close()
	b.pipe.close()
	if b.owned && !b.closed.Swap(true) {
		return b.client.Close()
	}
	return nil
}

// transport is go-redis at work for the store. It is apart from Backend so that its methods are
// not Backend's.
type transport struct{ *Backend }

// Run executes a script and returns its reply. If the server does not know the script (a new
// server, a failover, SCRIPT FLUSH), it is sent itself.
func (t transport) Run(ctx context.Context, r store.Request) (reply any, replicas int, err error) {
	if r.Replicas > 0 {
		return t.acknowledged(ctx, r)
	}
	cmd := t.command(ctx, "evalsha", r.Script.SHA1(), r)
	if err := t.pipe.do(ctx, request{cmd: cmd}); err != nil {
		return nil, 0, err
	}
	if reply, err = cmd.Result(); err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return reply, 0, err
	}
	cmd = t.command(ctx, "eval", r.Script.Source(), r)
	if err := t.pipe.do(ctx, request{cmd: cmd}); err != nil {
		return nil, 0, err
	}
	reply, err = cmd.Result()
	return reply, 0, err
}

// Set executes a plain SET.
func (t transport) Set(ctx context.Context, key string, args ...string) (wrote bool, err error) {
	words := make([]any, 2, 2+len(args))
	words[0], words[1] = "set", key
	for i := range args {
		if t.owned {
			words = append(words, &args[i]) // an allocation less, as in command
		} else {
			words = append(words, args[i])
		}
	}
	cmd := attempt{redis.NewCmd(ctx, words...)}
	if err := t.pipe.do(ctx, request{cmd: cmd}); err != nil {
		return false, err
	}
	if err = cmd.Err(); errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

// acknowledged runs a script and waits on its connection for replicas.
func (t transport) acknowledged(ctx context.Context,
	r store.Request,
) (reply any, replicas int, err error) {
	send := func(command any, what string, limit time.Duration) (run, wait attempt, err error) {
		run = t.command(ctx, command, what, r)
		wait = attempt{redis.NewCmd(ctx, "wait", r.Replicas, max(limit.Milliseconds(), 1))}
		err = t.pipe.do(ctx, request{own: func(ctx context.Context) {
			p := t.client.Pipeline() // one connection
			_, _ = p.Process(ctx, run), p.Process(ctx, wait)
			_, _ = p.Exec(ctx)
		}})
		return run, wait, err
	}
	began, limit := time.Now(), t.cfg.RequestTimeout/2
	run, wait, err := send("evalsha", r.Script.SHA1(), limit)
	// In that case WAIT may have waited all the same.
	if err == nil && redis.HasErrorPrefix(run.Err(), "NOSCRIPT") {
		// safeguard: replicas-of-the-grant
		run, wait, err = send("eval", r.Script.Source(),
			min(limit, (t.cfg.RequestTimeout-time.Since(began))/2))
	}
	if err != nil {
		return nil, 0, err
	}
	if reply, err = run.Result(); err != nil {
		return nil, 0, err
	}
	n, err := wait.Int64()
	if err != nil {
		return nil, 0, store.Unconfirmed(err) // safeguard: redis-unconfirmed
	}
	return reply, int(n), nil
}

// command is one that runs a script.
func (b *Backend) command(ctx context.Context, command any, what string, r store.Request) attempt {
	words := make([]any, 3, 3+len(r.Keys)+len(r.Args))
	words[0], words[1], words[2] = command, what, len(r.Keys)
	for _, key := range r.Keys {
		words = append(words, key)
	}
	for i := range r.Args {
		if b.owned {
			words = append(words, &r.Args[i]) // an allocation less
		} else {
			words = append(words, r.Args[i]) // a program's hooks may want to read them
		}
	}
	cmd := attempt{redis.NewCmd(ctx, words...)}
	cmd.SetFirstKeyPos(3)
	return cmd
}

// Info returns the reply to INFO section of each primary.
func (t transport) Info(ctx context.Context, section string) (infos []string, err error) {
	var all []string
	var failed error
	if err := t.pipe.do(ctx, request{own: func(ctx context.Context) {
		all, failed = t.info(ctx, section)
	}}); err != nil {
		return nil, err // and what is written later is nobody's
	}
	return all, failed
}

func (b *Backend) info(ctx context.Context, section string) ([]string, error) {
	cluster, ok := b.client.(*redis.ClusterClient)
	if !ok {
		info, err := b.client.Info(ctx, section).Result()
		return []string{info}, err
	}
	each := make(chan string, 1<<14) // as many as there are slots
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		info, err := c.Info(ctx, section).Result()
		each <- info
		return err
	})
	close(each)
	var infos []string
	for info := range each {
		infos = append(infos, info)
	}
	return infos, err
}

// Scan makes the pages of one primary after the other.
func (t transport) Scan(ctx context.Context, pattern string, page func(keys []string) bool) error {
	nodes := []redis.Cmdable{t.client}
	if cluster, ok := t.client.(*redis.ClusterClient); ok {
		var mu sync.Mutex
		nodes = nil
		if err := cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, c)
			return nil
		}); err != nil {
			return err
		}
	}
	for _, node := range nodes {
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			bounded, cancel := context.WithTimeout(ctx, t.cfg.RequestTimeout)
			keys, next, err := node.Scan(bounded, cursor, pattern, store.ScanCount).Result()
			cancel()
			if err != nil {
				return err
			}
			if !page(keys) {
				return nil
			}
			cursor = next
		}
	}
	return nil
}

// Check tries PING, which keeps the connection for pub/sub, and with Replicas WAIT.
func (t transport) Check(ctx context.Context) error {
	commands := [][]any{{"ping"}}
	if t.cfg.Replicas > 0 {
		commands = append(commands, []any{"wait", 0, 1}) // for none: it is answered at once
	}
	for _, words := range commands {
		cmd := attempt{redis.NewCmd(ctx, words...)}
		if err := t.pipe.do(ctx, request{cmd: cmd}); err != nil {
			return err
		}
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Messages returns a pub/sub connection, which is made when it is first used.
func (t transport) Messages(ctx context.Context) store.Messages {
	return messages{t.client.Subscribe(ctx)}
}

// Explain says what an error of go-redis means.
func (t transport) Explain(err error) store.Failure {
	var reply redis.Error
	if errors.As(err, &reply) {
		return store.Failure{Reply: reply.Error()}
	}
	// The client learns of a failover from a reply only, and a dead primary gives none.
	if t.reload != nil {
		t.reload()
	}
	return store.Failure{
		Closed: errors.Is(err, redis.ErrClosed),
		Unsent: store.NotMade(err) || errors.Is(err, redis.ErrPoolTimeout) ||
			errors.Is(err, redis.ErrPoolExhausted),
	}
}

// messages is a pub/sub connection of go-redis.
type messages struct{ *redis.PubSub }

// Receive is that of go-redis, which panics on a message of a shape that it does not expect: here
// that is a broken connection.
func (m messages) Receive(ctx context.Context) (message store.Message, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("redis: pub/sub message is not understood: %v", r)
		}
	}()
	got, err := m.PubSub.Receive(ctx)
	switch got := got.(type) {
	case *redis.Message:
		message = store.Message{Kind: store.Published, Channel: got.Channel, Payload: got.Payload}
	case *redis.Subscription:
		if got.Kind == "subscribe" {
			message = store.Message{Kind: store.Confirmed, Channel: got.Channel}
		}
	}
	return message, err
}

// Ping sends one; its answer is for Receive.
func (m messages) Ping(ctx context.Context) error { return m.PubSub.Ping(ctx) }
