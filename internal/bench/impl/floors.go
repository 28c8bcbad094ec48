package impl

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// A floor is the least that a lock of its kind costs, by one client library, with nothing of what
// keeps it safe when anything fails:
//
//   - raw: SET NX PX and a compare-and-delete script, which everybody copies. No token.
//   - floor-fenced: the same with a token of the server's clock and a wake-up.
//   - floor-native: SET NX once, then compare-and-set both ways; the token is in the value. For
//     servers that have SET IFEQ.
//   - floor-hand-off: see handoff.go.
func init() {
	register(
		newFloor("raw", Goredis, "SET NX PX, compare-and-delete by EVALSHA", newRaw, "set",
			"evalsha"),
		newFloor("raw", Rueidis, "SET NX PX, compare-and-delete by EVALSHA", newRaw, "set",
			"evalsha"),
		newFloor("floor-fenced", Goredis, "SET NX with TIME as token; GET, DEL, PUBLISH", newFenced,
			"evalsha"),
		newFloor("floor-fenced", Rueidis, "SET NX with TIME as token; GET, DEL, PUBLISH", newFenced,
			"evalsha"),
		newFloor("floor-native", Goredis, "SET IFEQ both ways, token in the value", newNative,
			"set"),
		newFloor("floor-native", Rueidis, "SET IFEQ both ways, token in the value", newNative,
			"set"),
		newFloor("floor-hand-off", Goredis, handOffSettings, newHandOff, "evalsha"),
		newFloor("floor-hand-off", Rueidis, handOffSettings, newHandOff, "evalsha"),
	)
}

var errTaken = errors.New("the key is taken, and a floor does not wait")

func newFloor(
	name, client, settings string, open func(context.Context, bare) (Client, error), sent ...string,
) Impl {
	return Impl{
		Name: name + "+" + client, Role: Floor, Client: client, Settings: "no library: " + settings,
		Sent: sent,
		Open: func(ctx context.Context, addr string) (Client, error) {
			b, err := dial(client, addr)
			if err != nil {
				return nil, err
			}
			return open(ctx, b)
		},
	}
}

// A bare is a client library with what the floors need of it.
type bare struct {
	// set sends SET with these words, and reports whether it was done.
	set func(ctx context.Context, key string, words ...string) (bool, error)
	// script returns what runs a script that answers with a number.
	script func(source string) script
	// subscribe calls f with each message of a channel, from when it returns.
	subscribe func(ctx context.Context, channel string, f func(message string)) error
}

type script func(ctx context.Context, key string, args ...string) (int64, error)

func dial(client, addr string) (bare, error) {
	if client == Goredis {
		return dialGoredis(redis.NewClient(&redis.Options{Addr: addr})), nil
	}
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	return dialRueidis(c), err
}

func dialGoredis(c *redis.Client) bare {
	return bare{
		set: func(ctx context.Context, key string, words ...string) (bool, error) {
			args := make([]any, 2, 2+len(words))
			args[0], args[1] = "SET", key
			for _, w := range words {
				args = append(args, w)
			}
			err := c.Do(ctx, args...).Err()
			if errors.Is(err, redis.Nil) {
				return false, nil
			}
			return err == nil, err
		},
		script: func(source string) script {
			s := redis.NewScript(source)
			return func(ctx context.Context, key string, args ...string) (int64, error) {
				words := make([]any, len(args))
				for i := range args {
					words[i] = args[i]
				}
				return s.Run(ctx, c, []string{key}, words...).Int64()
			}
		},
		subscribe: func(ctx context.Context, channel string, f func(string)) error {
			sub := c.Subscribe(ctx, channel)
			if _, err := sub.Receive(ctx); err != nil {
				return err
			}
			go func() {
				for {
					m, err := sub.ReceiveMessage(context.Background())
					if err != nil {
						return
					}
					f(m.Payload)
				}
			}()
			return nil
		},
	}
}

func dialRueidis(c rueidis.Client) bare {
	return bare{
		set: func(ctx context.Context, key string, words ...string) (bool, error) {
			err := c.Do(ctx, c.B().Arbitrary("SET").Keys(key).Args(words...).Build()).Error()
			if rueidis.IsRedisNil(err) {
				return false, nil
			}
			return err == nil, err
		},
		script: func(source string) script {
			s := rueidis.NewLuaScript(source)
			return func(ctx context.Context, key string, args ...string) (int64, error) {
				return s.Exec(ctx, c, []string{key}, args).AsInt64()
			}
		},
		subscribe: func(ctx context.Context, channel string, f func(string)) error {
			there := make(chan struct{})
			ctx = context.WithoutCancel(ctx) // it lasts as long as the process
			ctx = rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) {
				close(there)
			})
			failed := make(chan error, 1)
			go func() {
				failed <- c.Receive(ctx, c.B().Subscribe().Channel(channel).Build(),
					func(m rueidis.PubSubMessage) { f(m.Message) })
			}()
			select {
			case <-there:
				return nil
			case err := <-failed:
				return err
			}
		},
	}
}

const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', ` +
	`KEYS[1]) end return 0`

var lease = strconv.FormatInt(TTL.Milliseconds(), 10)

func newRaw(_ context.Context, b bare) (Client, error) {
	cad := b.script(compareAndDelete)
	return lockFunc(func(ctx context.Context, key string) (Held, error) {
		id := rand.Text()
		if ok, err := b.set(ctx, key, id, "NX", "PX", lease); !ok {
			return nil, errors.Join(errTaken, err)
		}
		return &held{0, func() error {
			_, err := cad(ctx, key, id)
			return err
		}}, nil
	}), nil
}

const (
	fencedAcquire = `local t = redis.call('TIME')
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return t[1] * 1000000 + t[2] end
return 0`
	fencedRelease = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[1], '') return 1`
)

func newFenced(_ context.Context, b bare) (Client, error) {
	acquire, release := b.script(fencedAcquire), b.script(fencedRelease)
	return lockFunc(func(ctx context.Context, key string) (Held, error) {
		id := rand.Text()
		token, err := acquire(ctx, key, id, lease)
		if err != nil || token == 0 {
			return nil, errors.Join(errTaken, err)
		}
		return &held{uint64(token), func() error {
			_, err := release(ctx, key, id)
			return err
		}}, nil
	}), nil
}

// newNative remembers the value that each key was released with. A key that is taken by another
// client is none of its business: it has no second way.
func newNative(_ context.Context, b bare) (Client, error) {
	var last sync.Map // of uint64 by key
	const retention = "15000"
	return lockFunc(func(ctx context.Context, key string) (Held, error) {
		id, token, ok, err := rand.Text(), uint64(0), false, error(nil)
		if v, known := last.Load(key); known {
			free, _ := v.(uint64)
			token = free + 1
			ok, err = b.set(ctx, key, value(id, token), "IFEQ", value("", free), "PX", lease)
		} else {
			token = uint64(time.Now().UnixMicro())
			ok, err = b.set(ctx, key, value(id, token), "NX", "PX", lease)
		}
		if !ok {
			return nil, errors.Join(errTaken, err)
		}
		return &held{token, func() error {
			ok, err := b.set(ctx, key, value("", token), "IFEQ", value(id, token), "PX", retention)
			if !ok {
				return errors.Join(errTaken, err)
			}
			last.Store(key, token)
			return nil
		}}, nil
	}), nil
}

func value(id string, token uint64) string { return strconv.FormatUint(token, 10) + " " + id }
