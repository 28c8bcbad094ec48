package scenario

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/bench/impl"
)

// layout measures what the server spends on a pair, by what a lock is in Redis. The candidates are throw-away scripts.
var layout = Scenario{
	Name: "layout", Title: "server time of an uncontended pair, by what a lock is in Redis",
	Limit: "SET NX + compare-and-delete", Inverse: true,
	Note: "µs/pair is what commandstats says of the commands sent; server CPU has the network and the parsing as well",
	Columns: []Column{
		{"p50", "commandstats/pair", Micros},
		{"ratio", "× SET NX", Ratio},
		{"scpu", "server CPU/pair", Micros},
		{"rate", "pairs/s", Number},
		{"executed", "executed/pair", Ratio},
	},
	Cases:  func(bool) []int { return []int{1, 128} },
	Length: lengths(300*time.Millisecond, 600*time.Millisecond),
	Extras: []Extra{
		{"as shipped", "redisbackend's TryAcquire and Release", layoutOf(shippedPair)},
		{"one HASH, fast path", "the same fields without tombstones, no key that is damaged", layoutOf(scriptPair(hashAcquire, hashRelease))},
		{"one STRING", "token|expiry|id|meta while held, |token after it", layoutOf(scriptPair(stringAcquire, stringRelease))},
		{"SET NX + compare-and-delete", "no token, no wake-up", layoutOf(nativePair)},
		{"SET NX + INCR, compare-and-delete", "a counter beside the key, for ever; no wake-up", layoutOf(scriptPair(incrAcquire, incrRelease))},
	},
}

// A pairMaker returns what makes a lock and an unlock of a key.
type pairMaker func(ctx context.Context, addr string) (pair func(key string) error, closing func(), err error)

func layoutOf(newPair pairMaker) func(context.Context, *Env, int) (Metrics, error) {
	return func(ctx context.Context, env *Env, n int) (Metrics, error) {
		pair, closing, err := newPair(ctx, env.Server.Addr)
		if err != nil {
			return nil, err
		}
		defer closing()
		return runPairs(env, n, pair)
	}
}

// runPairs makes pairs of n keys at a time.
func runPairs(env *Env, n int, pair func(key string) error) (Metrics, error) {
	var phase atomic.Int32
	var pairs atomic.Int64
	var failed atomic.Pointer[error]
	var tasks sync.WaitGroup
	for i := range n {
		tasks.Go(func() {
			for key := "layout-" + strconv.Itoa(i); phase.Load() < ending; {
				if err := pair(key); err != nil {
					failed.Store(&err)
					return
				}
				if phase.Load() == measuring {
					pairs.Add(1)
				}
			}
		})
	}
	time.Sleep(env.warm())
	before, err := env.Server.Counters()
	phase.Store(measuring)
	time.Sleep(env.Length)
	phase.Store(ending)
	after, err2 := env.Server.Counters()
	tasks.Wait()
	for _, e := range []*error{&err, &err2, failed.Load()} {
		if e != nil && *e != nil {
			return nil, *e
		}
	}
	c, m := after.Since(before), Metrics{"rate": float64(pairs.Load()) / env.Length.Seconds()}
	sent := impl.Impl{Sent: []string{"evalsha", "eval", "set"}}
	if c.Commands["set"].Calls > 0 && c.Commands["evalsha"].Calls > 1.5*float64(pairs.Load()) {
		sent.Sent = sent.Sent[:2] // the SETs are the scripts' own
	}
	m.perOp(sent, c, 0, float64(max(pairs.Load(), 1)))
	m["p50"] = c.Total(sent.Sent...).Usec / float64(max(pairs.Load(), 1))
	return m, nil
}

// shippedPair is the layout that ships, without the locker on top.
func shippedPair(ctx context.Context, addr string) (func(string) error, func(), error) {
	b, err := backend.Open(ctx, "redis://"+addr)
	if err != nil {
		return nil, nil, err
	}
	return func(key string) error {
		c := backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: impl.TTL, Meta: layoutMeta}
		if _, err := b.TryAcquire(ctx, c); err != nil {
			return err
		}
		c.NoneInFlight = true
		return b.Release(ctx, c)
	}, func() { _ = b.Close() }, nil
}

var layoutMeta = backend.Meta{Service: "bench", Host: "localhost", PID: 12345}

// nativePair is what SET NX libraries do.
func nativePair(_ context.Context, addr string) (func(string) error, func(), error) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	cad := redis.NewScript(incrRelease)
	return func(key string) error {
		ctx, id := context.Background(), backend.NewOwner()
		if err := c.SetNX(ctx, key, id, impl.TTL).Err(); err != nil { //nolint:staticcheck // as its users write it
			return err
		}
		return cad.Run(ctx, c, []string{key}, id).Err()
	}, func() { _ = c.Close() }, nil
}

// scriptPair is a pair of two scripts with the arguments id, TTL, meta, retention and channel.
func scriptPair(acquire, release string) pairMaker {
	return func(_ context.Context, addr string) (func(string) error, func(), error) {
		c := redis.NewClient(&redis.Options{Addr: addr})
		lock, unlock := redis.NewScript(acquire), redis.NewScript(release)
		return func(key string) error {
			ctx, keys := context.Background(), []string{"{" + key + "}", "{" + key + "}:f"}
			args := []any{backend.NewOwner(), impl.TTL.Milliseconds(), `{"service":"bench","host":"localhost","pid":12345}`, 60000, key + ":free"}
			if err := lock.Run(ctx, c, keys, args...).Err(); err != nil {
				return err
			}
			return unlock.Run(ctx, c, keys, args...).Err()
		}, func() { _ = c.Close() }, nil
	}
}
