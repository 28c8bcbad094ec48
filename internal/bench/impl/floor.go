package impl

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// The floors are what a lock of our kind costs when the least is done for it: tokens by the server's clock and a wake-up, or a line in the
// store and a grant that the release makes, and nothing of what keeps that safe when anything fails. They say how far a goal in pings or in
// bare commands is from what can be had on the machine that measures.
var (
	_ = register(newFloorFenced("floor-fenced+goredis", "github.com/redis/go-redis/v9", fencedGoredis))
	_ = register(newFloorFenced("floor-fenced+rueidis", "github.com/redis/rueidis", fencedRueidis))
	_ = register(Impl{
		Name: "floor-hand-off", Role: Limit, Settings: "go-redis, no library: a list as the line; a release that queues the process's next claim and grants the first in line",
		Modules: []string{"github.com/redis/go-redis/v9"}, Sent: []string{"evalsha", "eval"}, Fenced: true, Extra: true,
		Skip: []string{"S1", "S6"}, Open: openFloorHandOff,
	})
)

const (
	fencedAcquire = `local t = redis.call('TIME')
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return t[1] * 1000000 + t[2] end return 0`
	fencedRelease = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[1], '') return 1`
)

func newFloorFenced(name, module string, open func(addr string) (*floorFenced, error)) Impl {
	return Impl{
		Name: name, Role: Limit, Settings: "no library: SET NX with TIME as token; GET, DEL, PUBLISH",
		Modules: []string{module}, Sent: []string{"evalsha", "eval"}, Fenced: true, Extra: true, Skip: []string{"S2", "S3", "S4", "S6"},
		Open: func(_ context.Context, addr string) (Client, error) { return open(addr) },
	}
}

// A floorFenced runs the two scripts by a client.
type floorFenced struct {
	acquire, release func(ctx context.Context, key string, args ...string) (int64, error)
	close            func()
}

func fencedGoredis(addr string) (*floorFenced, error) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	script := func(source string) func(context.Context, string, ...string) (int64, error) {
		s := redis.NewScript(source)
		return func(ctx context.Context, key string, args ...string) (int64, error) {
			words := make([]any, len(args))
			for i := range args {
				words[i] = args[i]
			}
			return s.Run(ctx, c, []string{key}, words...).Int64()
		}
	}
	return &floorFenced{script(fencedAcquire), script(fencedRelease), func() { _ = c.Close() }}, nil
}

func fencedRueidis(addr string) (*floorFenced, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		return nil, err
	}
	script := func(source string) func(context.Context, string, ...string) (int64, error) {
		s := rueidis.NewLuaScript(source)
		return func(ctx context.Context, key string, args ...string) (int64, error) {
			return s.Exec(ctx, c, []string{key}, args).AsInt64()
		}
	}
	return &floorFenced{script(fencedAcquire), script(fencedRelease), c.Close}, nil
}

func (f *floorFenced) Close() error {
	f.close()
	return nil
}

func (f *floorFenced) Lock(ctx context.Context, key string) (Held, error) {
	h := &floorFencedHeld{f, ctx, key, rand.Text(), 0}
	token, err := f.acquire(ctx, key, h.id, strconv.FormatInt(TTL.Milliseconds(), 10))
	if err == nil && token == 0 {
		err = errTaken
	}
	h.token = uint64(token)
	return h, err
}

type floorFencedHeld struct {
	f       *floorFenced
	ctx     context.Context
	key, id string
	token   uint64
}

func (h *floorFencedHeld) Token() uint64 { return h.token }

func (h *floorFencedHeld) Unlock() error {
	_, err := h.f.release(h.ctx, h.key, h.id)
	return err
}

// A floorHandOff is a process with one claim at most in the store's line, and a line of its own.
type floorHandOff struct {
	c        *redis.Client
	sub      *redis.PubSub
	acq, rel *redis.Script
	name     string
	tasks    sync.WaitGroup

	mu    sync.Mutex
	seq   int
	busy  bool
	line  []*floorClaim
	stood *floorClaim // in the store's line
}

type floorClaim struct {
	id    string
	token chan uint64
}

// Its token is of a counter beside the key; it has one key, as the benchmark does.
func openFloorHandOff(ctx context.Context, addr string) (Client, error) {
	f := &floorHandOff{
		c:    redis.NewClient(&redis.Options{Addr: addr}),
		name: rand.Text(),
		acq: redis.NewScript(`if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[1] .. 'n') end
redis.call('RPUSH', KEYS[1] .. 'q', ARGV[1]) return 0`),
		rel: redis.NewScript(`if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
local q = KEYS[1] .. 'q'
if ARGV[3] ~= '' then redis.call('RPUSH', q, ARGV[3]) end
local n = redis.call('LPOP', q)
if not n then redis.call('DEL', KEYS[1]) return 0 end
redis.call('SET', KEYS[1], n, 'PX', ARGV[2])
local token = redis.call('INCR', KEYS[1] .. 'n')
if n == ARGV[3] then return token end
redis.call('PUBLISH', string.match(n, '^[^ ]*'), n .. ' ' .. token)
return 0`),
	}
	f.sub = f.c.Subscribe(ctx, f.name)
	if _, err := f.sub.Receive(ctx); err != nil {
		_ = f.c.Close()
		return nil, err
	}
	f.tasks.Go(f.listen)
	return f, nil
}

// listen takes the grants that others hand over.
func (f *floorHandOff) listen() {
	for {
		m, err := f.sub.ReceiveMessage(context.Background())
		if err != nil {
			return
		}
		last := strings.LastIndexByte(m.Payload, ' ')
		token, _ := strconv.ParseUint(m.Payload[last+1:], 10, 64)
		f.mu.Lock()
		if c := f.stood; c != nil && c.id == m.Payload[:last] {
			f.stood = nil
			c.token <- token
		}
		f.mu.Unlock()
	}
}

func (f *floorHandOff) Close() error {
	_ = f.sub.Close()
	f.tasks.Wait()
	return f.c.Close()
}

func (f *floorHandOff) Lock(ctx context.Context, key string) (Held, error) {
	c := &floorClaim{token: make(chan uint64, 1)}
	f.mu.Lock()
	f.seq++
	c.id = f.name + " " + strconv.Itoa(f.seq)
	first := !f.busy
	f.busy = true
	if first {
		f.stood = c
	} else {
		f.line = append(f.line, c)
	}
	f.mu.Unlock()
	if first {
		token, err := f.acq.Run(ctx, f.c, []string{key}, c.id, TTL.Milliseconds()).Uint64()
		if err != nil {
			return nil, err
		}
		if token > 0 {
			f.mu.Lock()
			f.stood = nil
			f.mu.Unlock()
			c.token <- token
		}
	}
	select {
	case token := <-c.token:
		return &floorHandOffHeld{f, key, c.id, token}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type floorHandOffHeld struct {
	f       *floorHandOff
	key, id string
	token   uint64
}

func (h *floorHandOffHeld) Token() uint64 { return h.token }

func (h *floorHandOffHeld) Unlock() error {
	f, next := h.f, ""
	f.mu.Lock()
	var c *floorClaim
	if len(f.line) > 0 {
		c, f.line = f.line[0], f.line[1:]
		f.stood, next = c, c.id
	} else {
		f.busy = false
	}
	f.mu.Unlock()
	token, err := f.rel.Run(context.Background(), f.c, []string{h.key}, h.id, TTL.Milliseconds(), next).Int64()
	if err != nil || token < 0 {
		return fmt.Errorf("release: %d %w", token, err)
	}
	if c != nil && token > 0 {
		f.mu.Lock()
		f.stood = nil
		f.mu.Unlock()
		c.token <- uint64(token)
	}
	return nil
}
