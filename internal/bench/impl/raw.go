package impl

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// compareAndDelete is the release of everybody who locks with SET NX.
const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

var errTaken = errors.New("the key is taken, and a raw client does not wait")

// The raw clients say how fast a pair of SET NX and compare-and-delete can be. They do not wait, so S1 is all they do.
var (
	_ = register(Impl{
		Name: "raw-goredis", Role: Limit, Settings: "SET NX PX 8000, compare-and-delete by EVALSHA; default client",
		Modules: []string{"github.com/redis/go-redis/v9"}, Sent: []string{"set", "evalsha", "eval"},
		Skip: []string{"S2", "S3", "S4", "S6"}, Open: openRawGoredis,
	})
	_ = register(Impl{
		Name: "raw-rueidis", Role: Limit, Settings: "SET NX PX 8000, compare-and-delete by EVALSHA; default client",
		Modules: []string{"github.com/redis/rueidis"}, Sent: []string{"set", "evalsha", "eval"},
		Skip: []string{"S2", "S3", "S4", "S6"}, Open: openRawRueidis,
	})
)

type rawGoredis struct {
	c   *redis.Client
	cad *redis.Script
}

func openRawGoredis(_ context.Context, addr string) (Client, error) {
	return &rawGoredis{redis.NewClient(&redis.Options{Addr: addr}), redis.NewScript(compareAndDelete)}, nil
}

func (r *rawGoredis) Close() error { return r.c.Close() }

func (r *rawGoredis) Lock(ctx context.Context, key string) (Held, error) {
	h := &rawGoredisHeld{r, ctx, key, rand.Text()}
	ok, err := r.c.SetNX(ctx, key, h.id, TTL).Result() //nolint:staticcheck // what a user of the bare client writes
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, errTaken
	}
	return h, nil
}

type rawGoredisHeld struct {
	r       *rawGoredis
	ctx     context.Context
	key, id string
}

func (*rawGoredisHeld) Token() uint64 { return 0 }

func (h *rawGoredisHeld) Unlock() error {
	return h.r.cad.Run(h.ctx, h.r.c, []string{h.key}, h.id).Err()
}

type rawRueidis struct {
	c   rueidis.Client
	cad *rueidis.Lua
}

func openRawRueidis(_ context.Context, addr string) (Client, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		return nil, err
	}
	return &rawRueidis{c, rueidis.NewLuaScript(compareAndDelete)}, nil
}

func (r *rawRueidis) Close() error {
	r.c.Close()
	return nil
}

func (r *rawRueidis) Lock(ctx context.Context, key string) (Held, error) {
	h := &rawRueidisHeld{r, ctx, key, rand.Text()}
	set := r.c.B().Set().Key(key).Value(h.id).Nx().PxMilliseconds(int64(TTL / time.Millisecond)).Build()
	switch err := r.c.Do(ctx, set).Error(); {
	case rueidis.IsRedisNil(err):
		return nil, errTaken
	case err != nil:
		return nil, err
	}
	return h, nil
}

type rawRueidisHeld struct {
	r       *rawRueidis
	ctx     context.Context
	key, id string
}

func (*rawRueidisHeld) Token() uint64 { return 0 }

func (h *rawRueidisHeld) Unlock() error {
	return h.r.cad.Exec(h.ctx, h.r.c, []string{h.key}, []string{h.id}).Error()
}
