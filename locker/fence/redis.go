package fence

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// A RedisBackend has locks in a Redis, and runs scripts there: *redisbackend.Backend, which may
// share the program's go-redis client, and *rueidisbackend.Backend.
type RedisBackend interface {
	// Fenced runs script in the step that proves that token is one of the present hold of key. The
	// error is [backend.ErrLost] if it is not: then nothing ran.
	Fenced(ctx context.Context, key string, token uint64, script string,
		keys, args []string) (any, error)
}

// Redis writes and reads what a lock protects in the Redis that has the lock. Each operation is one
// script that looks at the lock first. It does what it says only while the hold is the last one
// that the lock knows: from the moment another holds, or Unlock has released, it is refused with an
// [ErrStale]. Of the holds that the goroutines of a process hand on, an older one is refused as
// soon as a newer one has done anything here, so begin with the read.
//
// An error that is not ErrStale may mean that the operation was done: the answer was lost. To do it
// again is safe where it is harmless to do it twice.
//
// It is safe for concurrent use. Each operation blocks for one request, bounded by the backend's
// RequestTimeout and by ctx.
//
// On a Redis Cluster the keys of the data must have the lock's name as their {hash tag}, which the
// backend's LockKey shows: with the lock "sku-1", stock:{sku-1}.
type Redis struct {
	b RedisBackend
	h locker.Hold
}

// InRedis returns a handle to data for one hold, which must be an exclusive one of a Client on b:
// others are refused by every operation. Made in a [locker.Binder], it is what a guard protects:
//
//	bind := func(_ context.Context, h locker.Hold) (*fence.Redis, error) {
//		return fence.InRedis(b, h), nil
//	}
func InRedis(b RedisBackend, h locker.Hold) *Redis { return &Redis{b, h} }

// Eval runs a script with its own KEYS and ARGV, and returns its reply: an int64, a string, a []any
// of these, or nil. It runs as a part of a larger script, so it may not begin with "#!", and gets
// only what it is given.
func (r *Redis) Eval(ctx context.Context, script string, keys []string,
	args ...string,
) (any, error) {
	if r.h.Mode != backend.Exclusive {
		return nil, failed(r.h.Key,
			&backend.InvalidError{
				Field:  "hold",
				Reason: "is shared, and its tokens are in no order",
			})
	}
	if err := check(r.h.Key, r.h.Token); err != nil {
		return nil, err
	}
	reply, err := r.b.Fenced(ctx, r.h.StoreKey, r.h.Token, script, keys, args)
	switch {
	case errors.Is(err, backend.ErrLost):
		return nil, &StaleError{Key: r.h.Key, Token: r.h.Token, Err: err}
	case err != nil:
		return nil, failed(r.h.Key, err)
	}
	return reply, nil
}

// Get returns the value of a key, and false if it has none. It is fenced as writes are: once it has
// answered, no older hold writes.
func (r *Redis) Get(ctx context.Context, key string) (value string, ok bool, err error) {
	reply, err := r.Eval(ctx, `return redis.call('GET', KEYS[1])`, []string{key})
	value, ok = reply.(string)
	return value, ok, err
}

// Set sets a key to a value, as SET does: a time to live that the key had is gone.
func (r *Redis) Set(ctx context.Context, key, value string) error {
	_, err := r.Eval(ctx, `return redis.call('SET', KEYS[1], ARGV[1])`, []string{key}, value)
	return err
}

// HSet sets fields of a hash: a field, its value, and so on, 1000 pairs at most.
func (r *Redis) HSet(ctx context.Context, key string, fieldsAndValues ...string) error {
	_, err := r.Eval(ctx, `return redis.call('HSET', KEYS[1], unpack(ARGV))`, []string{key},
		fieldsAndValues...)
	return err
}
